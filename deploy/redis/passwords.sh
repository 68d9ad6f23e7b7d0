#!/bin/sh
# A password for each user of users.acl, and users.acl itself with their hashes, in a folder (./secrets by default) that only
# you may enter. Its files are for all to read: Docker hands them to containers whose users are others. A password that is
# there already stays; run it again for users that are new.
set -eu
folder=${1:-secrets}
users=$(dirname "$0")/users.acl

hash() {
  if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi
}

umask 022
mkdir -p "$folder"
chmod 0700 "$folder"
while read -r word user on secret rules; do
  if [ "$secret" = resetpass ]; then
    if [ ! -s "$folder/$user" ]; then
      od -A n -t x1 -N 24 /dev/urandom | tr -d ' \n' >"$folder/$user"
    fi
    secret="#$(tr -d '\n' <"$folder/$user" | hash | cut -d ' ' -f 1)"
  fi
  printf '%s\n' "$word $user $on $secret $rules"
done <"$users" >"$folder/users.acl.new"
# Not moved: a container that holds the old file would not see the new one.
cat "$folder/users.acl.new" >"$folder/users.acl"
rm "$folder/users.acl.new"

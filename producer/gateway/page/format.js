// Numbers and times as people read them.

const counts = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const shorts = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

export const NOTHING = "–";

export function count(value) {
  return value == null ? NOTHING : counts.format(value);
}

/** 12,345 as 12.3K: for what changes too fast to read each digit. */
export function short(value) {
  return value == null ? NOTHING : shorts.format(value);
}

export function percent(share) {
  return share == null ? NOTHING : `${Math.round(100 * share)} %`;
}

export function milliseconds(value) {
  if (value == null) return NOTHING;
  return Math.round(value) < 1000 ? `${Math.round(value)} ms` : seconds(value / 1000);
}

export function seconds(value) {
  if (value == null) return NOTHING;
  // Rounded before it is split: 119.6 s are two minutes, and no "1 min 60 s".
  const whole = Math.round(value);
  if (whole < 60) return `${value < 9.95 ? value.toFixed(1) : whole} s`;
  const [minutes, rest] = [Math.floor(whole / 60), whole % 60];
  if (minutes < 60) return `${minutes} min ${rest} s`;
  const [hours, left] = [Math.floor(minutes / 60), minutes % 60];
  return hours < 48 ? `${hours} h ${left} min` : `${Math.floor(hours / 24)} days`;
}

export function clock(ms) {
  return new Date(ms).toLocaleTimeString("en-GB");
}

export function moment(ms) {
  const then = new Date(ms);
  return `${then.toISOString().slice(0, 10)} ${clock(ms)}`;
}

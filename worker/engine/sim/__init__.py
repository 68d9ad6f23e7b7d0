"""A simulated engine: the step times of real accelerators without the accelerator."""

"""The training loop: checkpoints, schedules, progress, several processes."""

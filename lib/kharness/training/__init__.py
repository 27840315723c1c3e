"""Building blocks of every training: device, data, schedules, optimizers, checkpoints and an orderly stop."""

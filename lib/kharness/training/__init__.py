"""What trainings share: device, data, schedules, optimisers, checkpoints and stopping in good order."""

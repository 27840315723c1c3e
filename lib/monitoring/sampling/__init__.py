"""GPU drivers are called in a process of their own, whose crash is no one else's."""

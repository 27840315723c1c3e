"""Text as tokens: how it becomes them, the shards that hold them, and how a training reads those."""

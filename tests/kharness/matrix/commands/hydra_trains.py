"""A training as one writes it with Hydra: its options are overrides, its logger Hydra's.

Every fifth step it keeps a checkpoint in the folder that Hydra gives it, and goes on from one that is there.
"""

from __future__ import annotations

import logging
import time
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

log = logging.getLogger(__name__)


@hydra.main(config_path="hydra_conf", config_name="config")
def main(config: DictConfig) -> None:
    kept = Path(HydraConfig.get().runtime.output_dir) / "step"
    first = int(kept.read_text()) + 1 if kept.exists() else 1
    for step in range(first, config.steps + 1):
        while first == 1 and step == config.hold:  # until it is killed
            time.sleep(0.1)
        log.info("step %d loss %.6f", step, 1 / step / config.half)
        if step % 5 == 0:
            kept.write_text(str(step))
    log.info("epoch 1: val_loss=%.6f", 1 / config.lr)


if __name__ == "__main__":
    main()

"""Fine-tuning on sDCI, as in the paper's section 5: losses, batches, a Trainer, presets, and all of it in `train`."""

from dci_metrics.training.callback import BenchmarkCallback
from dci_metrics.training.config import TrainConfig, load_config, presets
from dci_metrics.training.losses import clip_loss, negatives_loss
from dci_metrics.training.run import train
from dci_metrics.training.seeds import train_seeds
from dci_metrics.training.trainer import ContrastiveTrainer

__all__ = [
    "BenchmarkCallback",
    "ContrastiveTrainer",
    "TrainConfig",
    "clip_loss",
    "load_config",
    "negatives_loss",
    "presets",
    "train",
    "train_seeds",
]

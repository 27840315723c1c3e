"""Fashion-MNIST: 60,000 training and 10,000 test pictures of clothes, 28x28, in MNIST's format.

H. Xiao, K. Rasul, R. Vollgraf 2017 (arXiv 1708.07747), MIT license, Zalando SE.
"""

from __future__ import annotations

from kharness.training.datasets._digits import Digits, mnist_files
from kharness.training.datasets._files import DataFolder, Dataset

CITED = ("xiao2017",)

# Of the publisher's files: their gzip MD5 sums stand in https://github.com/zalandoresearch/fashion-mnist
FASHION_MNIST = Dataset(
    name="fashion-mnist",
    files=mnist_files(
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
        train=60_000,
        test=10_000,
    ),
    mirrors=(
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
)

CLASSES = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)

CLOTHES = Digits(
    FASHION_MNIST,
    hint="make data CONFIG_MODEL_RESNET50=y fetches it; DATASET=digits needs no download",
    classes=CLASSES,
    mean=0.2860,
    std=0.3530,
)

Options = DataFolder
fetch, check, load, count = CLOTHES.fetch, CLOTHES.check, CLOTHES.load, CLOTHES.count

"""When something is due: by steps, by epochs, or never."""

from __future__ import annotations

from kharness.training.due import Every


def test_every_says_which_epochs_are_due() -> None:
    assert [Every(epochs=2).is_due(5, epoch=epoch) for epoch in (1, 2, 3, 4, None)] == [
        *(False, True, False, True, False)
    ]
    assert [Every().is_due(5, epoch=epoch) for epoch in (1, 2)] == [False, False]


def test_steps_take_the_place_of_epochs() -> None:
    every = Every(epochs=1, steps=3)
    assert [every.is_due(step, epoch=step // 2) for step in range(1, 7)] == [*(False, False, True) * 2]
    assert [bool(some) for some in (every, Every(steps=1), Every(epochs=1), Every())] == [
        True,
        True,
        True,
        False,
    ]

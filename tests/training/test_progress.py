from cgmvae.training.progress import EpochLines


def test_the_time_left_is_that_of_the_epochs_so_far():
    now, lines = [100.0], []
    progress = EpochLines(lambda: "micro-F1", lines.append, clock=lambda: now[0])
    for epoch, seconds in ((11, 10.0), (12, 20.0)):  # resumed after ten
        now[0] += seconds
        progress(epoch, 20, 0.5)
    assert lines == [
        "Epoch 11 of 20: best micro-F1 0.5000, about 1 min 30 s left",
        "Epoch 12 of 20: best micro-F1 0.5000, about 2 min 0 s left",
    ]

from cgmvae.training.progress import EpochLines, MergedProgress


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


def test_progress_is_that_of_the_slowest_part_at_work():
    told = []
    progress = MergedProgress(2, lambda *each: told.append(each))
    progress.add(0, 4, 9, 0.5)  # resumed after epoch 3
    assert told == []
    progress.add(1, 4, 9, 0.6)
    progress.add(1, 5, 9, 0.7)
    progress.add(1, 6, 9, 0.7)
    assert told == [(4, 9, 0.6)]
    progress.end(0)  # stopped early: no member has improved
    assert told[1:] == [(5, 9, 0.7), (6, 9, 0.7)]
    progress.add(1, 7, 9, 0.8)
    progress.end(1)
    assert told[3:] == [(7, 9, 0.8)]

"""A channel keeps its deadlines, and refuses arrays that are none."""

from __future__ import annotations

import json
import math
import os
import threading
import time

import numpy as np
import pytest

from leaderboard.sandbox.channel import Channel, ChannelError, array_header, as_array, as_blob, pipe_pair


def test_an_endless_sender_does_not_keep_the_judge_beyond_the_deadline():
    (reading, here), (there, writing) = pipe_pair()
    channel = Channel(reading, here)
    header = json.dumps(["megabatch", {}, []]).encode()
    os.write(writing, (len(header).to_bytes(8, "big") + header) * 10)
    assert channel.receive(deadline=time.monotonic() + 60).kind == "megabatch"
    with pytest.raises(ChannelError, match="took too long"):
        channel.receive(deadline=time.monotonic() - 1)
    for descriptor in (reading, here, there, writing):
        os.close(descriptor)


def test_a_receiver_without_a_deadline_waits_for_the_sender():
    (reading, here), (there, writing) = pipe_pair()
    header = json.dumps(["megabatch", {}, []]).encode()
    sender = threading.Timer(0.2, os.write, (writing, len(header).to_bytes(8, "big") + header))
    sender.start()
    assert Channel(reading, here).receive(deadline=math.inf).kind == "megabatch"
    sender.join()
    for descriptor in (reading, here, there, writing):
        os.close(descriptor)


@pytest.mark.parametrize(
    "dtype",
    [
        *("(1,", "(1,)f4,'", "f4," * 10_000, "(99999999999,)f4", ">f4", "f4", "O", "M8[9s]", "\ud800", "float16", ""),
        *(None, True, 2**70, ["float32"], [["a", "f4"]], {"names": ["a"], "formats": ["(9,9"]}),
    ],
)
def test_a_type_of_an_array_is_one_of_the_known_names(dtype):
    with pytest.raises(ChannelError, match="not an array"):
        as_array(b"12345678", {"dtype": dtype, "shape": [2]})


@pytest.mark.parametrize("shape", [None, 2, [-1], [1.0], [True], [2**62, 4], [2**70], [[2]], ["2"], [1] * 9, [3], []])
def test_a_shape_of_an_array_fits_its_bytes(shape):
    with pytest.raises(ChannelError, match="not an array"):
        as_array(b"12345678", {"dtype": "float32", "shape": shape})


@pytest.mark.parametrize("dtype", ["uint8", "int32", "int64", "float32", "float64"])
def test_an_array_arrives_as_it_was(dtype):
    array = np.arange(6).reshape(2, 3).astype(dtype)
    arrived = as_array(as_blob(array), array_header(array))
    assert arrived.dtype == array.dtype
    assert np.array_equal(arrived, array)

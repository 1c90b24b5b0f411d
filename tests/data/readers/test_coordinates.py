"""Columns of places: blocks in space are the groups of the rows."""

import numpy as np
import pytest

from cgmvae.data import readers, spatial_blocks, streaming
from cgmvae.data.splits import find_coordinates
from cgmvae.errors import InputError

PLACES = np.random.default_rng(0).uniform([45, 5], [50, 12], size=(60, 2)).round(3)


@pytest.fixture
def sites(tmp_path):
    """Write a table of 60 sites: their place, their height, and whether there are owls."""
    cells = [f"{lat},{lon},{j * 10},{j % 2}" for j, (lat, lon) in enumerate(PLACES)]
    path = tmp_path / "sites.csv"
    path.write_text("\n".join(["lat,lon,height,owl", *cells]) + "\n")
    return path


@pytest.mark.parametrize("given", ["lat,lon", ("lat", "lon")])
def test_blocks_become_the_groups(sites, given):
    data = readers.read(sites, labels=["owl"], coordinates=given)
    assert data.coordinates.tolist() == PLACES.tolist()
    assert data.groups.tolist() == spatial_blocks(PLACES).tolist()
    assert data.feature_names == ("lat", "lon", "height")
    wide = readers.read(sites, labels=["owl"], coordinates=given, block_size=3)
    assert len(set(wide.groups)) == 6
    assert wide.rows([3, 1]).coordinates.tolist() == PLACES[[3, 1]].tolist()


def test_dropped_columns_are_places_but_not_features(sites):
    data = readers.read(sites, labels=["owl"], coordinates="lat,lon", drop=["lat", "lon"])
    assert data.feature_names == ("height",)
    assert data.coordinates.tolist() == PLACES.tolist()


def test_rows_on_disk_have_the_same_blocks(sites, tmp_path, monkeypatch):
    monkeypatch.setattr(streaming, "BLOCK_BYTES", 200)  # a few rows
    options = {"labels": ["owl"], "coordinates": "lat,lon"}
    mapped = streaming.unpack(sites, tmp_path / "sites.mapped", **options)
    assert mapped.groups.tolist() == readers.read(sites, **options).groups.tolist()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"coordinates": "lat"}, "A place needs two columns"),
        ({"coordinates": "lat,lat"}, "A place needs two columns"),
        ({"coordinates": "lat,long"}, "There is no column 'long'; did you mean 'lon'"),
        ({"coordinates": "lat,owl"}, "'owl' cannot be a coordinate as well"),
        ({"coordinates": "lat,lon", "groups": "height"}, "give either"),
        ({"coordinates": "lat,lon", "block_size": 0}, "The size of a block is 0"),
        ({"block_size": 2}, "says nothing without the columns of the place"),
    ],
)
def test_what_is_no_place_is_refused(sites, options, message):
    with pytest.raises(InputError, match=message):
        readers.read(sites, labels=["owl"], **options)


@pytest.mark.parametrize("cell", ["", "north", "inf"])
def test_every_row_needs_its_place(sites, cell):
    sites.write_text(sites.read_text() + f"{cell},7,1,1\n")
    with pytest.raises(InputError, match="'lat' is not a number in every row"):
        readers.read(sites, labels=["owl"], coordinates="lat,lon", drop=["lat", "lon"])


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["Lat", "LON", "slope"], ("Lat", "LON")),
        (["Longitude", "decimal_latitude"], ("decimal_latitude", "Longitude")),
        (["UTM easting", "UTM northing"], ("UTM northing", "UTM easting")),
        (["latitude", "slope"], None),
        (["lat", "latitude", "lon"], None),
        (["plateau", "long_name"], None),
    ],
)
def test_names_of_coordinates(names, found):
    assert find_coordinates(names) == found

"""Makes files that must be refused: hostile/*.keras, *.weights.h5 and *.safetensors, and hostile/expected.json.

Most are models/mlp.keras (the model 6 -> 8 -> 3) with one thing changed. expected.json has for every file "why" (what is wrong) and
"mentions" (words of which at least one should be in the error, in any case). Whatever a file claims, a reader must not
crash, not execute anything, not open any other file, not write outside its directory, and not reserve memory that the file's own
size does not justify.
"""

import io
import json
import pathlib
import struct
import zipfile

import numpy as np

from common import HERE
from make_models import repeat

import h5py
import keras

FOLDER = HERE / "hostile"
BASE = HERE / "models" / "mlp.keras"
EXPECTED = {}
DATE = (2026, 1, 1, 0, 0, 0)


def expect(name, why, *mentions):
    EXPECTED[name] = {"why": why, "mentions": list(mentions)}
    return FOLDER / name


def members():
    with zipfile.ZipFile(BASE) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(entries):
    """entries: a dictionary, or pairs (name or ZipInfo, data) where names repeat."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in entries.items() if isinstance(entries, dict) else entries:
            archive.writestr(name if isinstance(name, zipfile.ZipInfo) else zipfile.ZipInfo(name, DATE), data)
    return bytearray(buffer.getvalue())


def config_case(name, why, mentions, change):
    files = members()
    config = json.loads(files["config.json"])
    config = change(config) or config
    files["config.json"] = json.dumps(config).encode()
    expect(name, why, *mentions).write_bytes(pack(files))


def weights_case(name, why, mentions, change):
    """change(file) edits the opened HDF5 file; the same bytes are also stored as NAME.weights.h5."""
    files = members()
    buffer = io.BytesIO(files["model.weights.h5"])
    with h5py.File(buffer, "r+", libver="earliest") as file:
        change(file)
    files["model.weights.h5"] = buffer.getvalue()
    expect(name + ".keras", why, *mentions).write_bytes(pack(files))
    expect(name + ".weights.h5", why, *mentions).write_bytes(buffer.getvalue())


def layer(config, number):
    return config["config"]["layers"][number]


KERNEL = "layers/dense/vars/0"
HIDDEN = 1  # the Dense layer "hidden" in the config's list


def configs():
    model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Lambda(eval(compile("lambda x: x * 2", "lambda", "eval")))])
    path = FOLDER / "lambda.keras"  # compiled from a string: the byte code names its source file
    model.save(path)
    repeat(path)
    expect("lambda.keras", "a Lambda layer with Python byte code, saved by Keras", "lambda")

    def named_function(config):
        config["config"]["layers"][HIDDEN] = {
            "module": "keras.layers", "class_name": "Lambda", "registered_name": None,
            "config": {"name": "hidden", "function": {"module": "os", "class_name": "function", "config": "system", "registered_name": "system"},
                       "arguments": {"command": "touch executed"}}}

    config_case("lambda_named.keras", "a Lambda layer that names os.system", ["lambda"], named_function)

    def custom(config):
        layer(config, HIDDEN).update(module="os", class_name="Evil", registered_name="package>Evil")

    config_case("custom_class.keras", "a class that is nobody's", ["Evil"], custom)

    def activation(config):
        layer(config, HIDDEN)["config"]["activation"] = {"module": "os", "class_name": "function", "config": "system", "registered_name": "system"}

    config_case("activation_function.keras", "an activation that is a Python function", ["activation", "system"], activation)

    def units(value):
        def change(config):
            layer(config, HIDDEN)["config"]["units"] = value
        return change

    for name, value in (("huge", 10**12), ("negative", -3), ("zero", 0), ("text", "eight"), ("fraction", 8.5), ("overflow", 2**63 - 1), ("list", [8])):
        config_case(f"units_{name}.keras", f"units = {value!r}", ["units", "hidden", "size", "shape"], units(value))

    def batch_shape(value):
        def change(config):
            layer(config, 0)["config"]["batch_shape"] = value
        return change

    config_case("input_huge.keras", "an input of 2^31 by 2^31 numbers", ["shape", "input", "size"], batch_shape([None, 2**31, 2**31]))
    config_case("input_rank.keras", "an input with 300 dimensions", ["dimension", "rank", "shape"], batch_shape([None] + [1] * 300))
    config_case("input_negative.keras", "a negative dimension", ["shape", "dimension", "input"], batch_shape([None, -6]))
    config_case("class_number.keras", "class_name is a number", ["class_name", "class"], lambda c: layer(c, HIDDEN).update(class_name=7))
    config_case("layers_missing.keras", "no list of layers", ["layers"], lambda c: c["config"].pop("layers") and None)
    config_case("layers_object.keras", "layers is an object", ["layers"], lambda c: c["config"].update(layers={"a": 1}))
    config_case("name_long.keras", "a layer name of 100 KB", ["name", "long"], lambda c: layer(c, HIDDEN)["config"].update(name="n" * 100_000))
    config_case("name_nul.keras", "a layer name with a NUL in it", ["name", "config", "nul"], lambda c: layer(c, HIDDEN)["config"].update(name="a\0b"))
    config_case("name_path.keras", "a layer name that is a path", ["name", "hidden", "weights"], lambda c: layer(c, HIDDEN)["config"].update(name="../../etc"))
    config_case("top_level_list.keras", "the config is a list", ["config"], lambda c: [c])
    config_case("many_layers.keras", "20,000 layers", ["layers"], lambda c: c["config"].update(layers=c["config"]["layers"][:1] + [{"class_name": "Flatten"}] * 20_000))


def graphs():
    """Functional graphs that are none; base: models/nested.keras."""
    def graph(name, why, mentions, change):
        with zipfile.ZipFile(HERE / "models" / "nested.keras") as archive:
            files = {n: archive.read(n) for n in archive.namelist()}
        config = json.loads(files["config.json"])
        change({x["name"]: x for x in config["config"]["layers"]}, config["config"])
        files["config.json"] = json.dumps(config).encode()
        expect(name, why, *mentions).write_bytes(pack(files))

    def history(layers, name):
        return layers[name]["inbound_nodes"][0]["args"][0]["config"]

    graph("graph_cycle.keras", "a layer that is its own input", ["cycle", "dense_2", "input"],
          lambda layers, c: history(layers, "dense_2").update(keras_history=["dense_2", 0, 0]))
    graph("graph_unknown.keras", "an input from a layer that does not exist", ["nobody"],
          lambda layers, c: history(layers, "dense_2").update(keras_history=["nobody", 0, 0]))
    graph("graph_node.keras", "node 1000 of a layer with one node", ["node", "dense_2", "add"],
          lambda layers, c: history(layers, "dense_2").update(keras_history=["add", 1000, 0]))
    graph("graph_tensor.keras", "tensor -1", ["tensor", "dense_2", "add"],
          lambda layers, c: history(layers, "dense_2").update(keras_history=["add", 0, -1]))
    graph("graph_output.keras", "an output that does not exist", ["nobody"], lambda layers, c: c.update(output_layers=["nobody", 0, 0]))


def archives():
    files = members()
    plain = pack(files)

    def raw(name, why, mentions, data):
        expect(name, why, *mentions).write_bytes(bytes(data))

    raw("path_escape.keras", "a member ../../escaped.txt", ["path", "name", "escape", ".."], pack(files | {"../../escaped.txt": b"x"}))
    raw("path_absolute.keras", "a member /escaped.txt", ["path", "name"], pack(files | {"/escaped.txt": b"x"}))
    raw("path_backslash.keras", "a member ..\\escaped.txt", ["path", "name"], pack(files | {"..\\escaped.txt": b"x"}))
    raw("asset_escape.keras", "an asset assets/../../escaped.txt", ["path", "name", ".."], pack(files | {"assets/../../escaped.txt": b"x"}))
    link = zipfile.ZipInfo("assets/link", DATE)
    link.create_system, link.external_attr = 3, 0o120777 << 16
    raw("symlink.keras", "a member that is a symbolic link", ["link"], pack([*files.items(), (link, b"../../../etc/passwd")]))
    raw("duplicate.keras", "two members config.json", ["config.json", "twice", "duplicate"], pack([*files.items(), ("config.json", files["config.json"])]))
    bomb = zipfile.ZipInfo("model.weights.h5", DATE)
    bomb.compress_type = zipfile.ZIP_DEFLATED
    zeros = files["model.weights.h5"] + bytes(256 << 20)
    raw("zip_bomb.keras", "256 MB of zeros in 260 KB", ["ratio", "size", "large", "bomb", "compress"],
        pack([(bomb if n == "model.weights.h5" else n, zeros if n == "model.weights.h5" else d) for n, d in files.items()]))
    raw("truncated.keras", "cut in the middle", ["zip", "archive", "end", "truncated"], plain[: len(plain) // 2])
    raw("empty.keras", "0 bytes", ["zip", "archive", "empty"], b"")
    raw("text.keras", "no zip at all", ["zip", "archive"], b"this is no archive\n" * 40)
    raw("no_config.keras", "config.json is missing", ["config.json"], pack({n: d for n, d in files.items() if n != "config.json"}))
    raw("no_weights.keras", "model.weights.h5 is missing", ["model.weights.h5"], pack({n: d for n, d in files.items() if n != "model.weights.h5"}))
    raw("config_broken.keras", "config.json is cut", ["config.json", "json"], pack(files | {"config.json": files["config.json"][:200]}))
    raw("config_deep.keras", "100,000 nested lists", ["config.json", "deep", "json"], pack(files | {"config.json": b"[" * 100_000 + b"]" * 100_000}))
    raw("config_bytes.keras", "config.json is not UTF-8", ["config.json", "utf-8", "json"], pack(files | {"config.json": b'{"class_name": "\xff\xfe"}'}))
    raw("weights_text.keras", "the weights are no HDF5", ["hdf5", "model.weights.h5"], pack(files | {"model.weights.h5": b"no weights\n" * 100}))
    central = plain.index(b"PK\x01\x02", plain.index(b"model.weights.h5") + 30)
    while plain[central + 46 : central + 46 + 16] != b"model.weights.h5":
        central = plain.index(b"PK\x01\x02", central + 4)
    for name, offset, form, value, why in (
        ("zip_size_larger", 24, "<I", 0x7FFFFFFF, "a stored member that claims 2 GB"),
        ("zip_size_smaller", 24, "<I", 10, "a stored member that claims 10 bytes"),
        ("zip_offset", 42, "<I", 0x7FFFFFF0, "a member beyond the end of the file"),
        ("zip_crc", 16, "<I", 0x12345678, "a wrong checksum"),
        ("zip_encrypted", 8, "<H", 1, "an encrypted member"),
        ("zip_method", 10, "<H", 12, "a member packed by bzip2 as it says"),
    ):
        data = bytearray(plain)
        struct.pack_into(form, data, central + offset, value)
        raw(name + ".keras", why, ["zip", "archive", "size", "model.weights.h5"], data)
    data = bytearray(plain)  # two entries of the directory share one member's bytes
    struct.pack_into("<I", data, central + 42, 0)
    raw("zip_overlap.keras", "two members over the same bytes", ["zip", "archive", "overlap", "model.weights.h5"], data)


def weights():
    def replace(file, **options):
        del file[KERNEL]
        return file["layers/dense/vars"].create_dataset("0", **options)

    def create(file, plist):
        plist.set_obj_track_times(False)  # the same bytes at every run
        h5py.h5d.create(file["layers/dense/vars"].id, b"0", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((6, 8)), plist)

    def external(file):
        replace(file, shape=(6, 8), dtype="f4", external=[("/etc/passwd", 0, 192)])

    weights_case("external_storage", "a dataset whose bytes are in another file", ["external", "storage", "layout"], external)

    def virtual(file):
        del file[KERNEL]
        space = h5py.h5s.create_simple((6, 8))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_virtual(space, b"other.h5", b"secret", space)
        create(file, plist)

    weights_case("virtual_dataset", "a dataset that is a view of another file", ["virtual", "layout"], virtual)

    def linked(link):
        def change(file):
            del file[KERNEL]
            file[KERNEL] = link
        return change

    weights_case("external_link", "a link into another file", ["link"], linked(h5py.ExternalLink("other.h5", "/secret")))
    weights_case("soft_link", "a soft link", ["link"], linked(h5py.SoftLink("/layers/dense_1/vars/0")))
    weights_case("soft_link_cycle", "a soft link to itself", ["link"], linked(h5py.SoftLink("/" + KERNEL)))

    def cycle(file):
        del file["layers/dense/vars"]
        file["layers/dense/vars"] = file["layers"]

    weights_case("group_cycle", "a group that contains itself", ["dense", "vars", "link", "missing"], cycle)

    def plugin(file):
        del file[KERNEL]
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_chunk((6, 8))
        plist.set_filter(32001, h5py.h5z.FLAG_OPTIONAL, (1, 2, 3))
        create(file, plist)

    weights_case("filter_plugin", "a dataset that needs a filter plug-in", ["filter"], plugin)
    weights_case("dataset_huge", "a dataset that claims 2^40 numbers", ["shape", "size", "hidden", "dense"],
                 lambda f: replace(f, shape=(2**20, 2**20), dtype="f4", chunks=(16, 16)))
    weights_case("shape_other", "a kernel of shape (6, 9) instead of (6, 8)", ["shape"], lambda f: replace(f, data=np.zeros((6, 9), "f4")))
    weights_case("shape_transposed", "a kernel of shape (8, 6)", ["shape"], lambda f: replace(f, data=np.zeros((8, 6), "f4")))
    weights_case("shape_scalar", "a kernel that is a scalar", ["shape"], lambda f: replace(f, data=np.float32(1)))
    weights_case("dtype_text", "a kernel of strings", ["type", "dtype"], lambda f: replace(f, data=np.full((6, 8), b"abc", "S3")))
    weights_case("dtype_compound", "a kernel of records", ["type", "dtype"], lambda f: replace(f, data=np.zeros((6, 8), [("a", "f4"), ("b", "i4")])))
    weights_case("dtype_variable", "a kernel of strings of variable length", ["type", "dtype"],
                 lambda f: replace(f, data=np.full((6, 8), b"abc", object), dtype=h5py.string_dtype()))
    weights_case("dataset_missing", "a layer without its bias", ["dense", "hidden", "missing", "bias"], lambda f: f.__delitem__("layers/dense/vars/1"))
    weights_case("group_missing", "a layer without its group", ["dense", "hidden", "missing"], lambda f: f.__delitem__("layers/dense"))
    good = members()["model.weights.h5"]
    for name, data, why in (("weights_cut", good[: len(good) // 2], "HDF5 cut in the middle"),
                            ("weights_superblock", good[:8] + b"\xff" * 88 + good[96:], "HDF5 with a broken superblock"),
                            ("weights_noise", good[:512] + np.random.default_rng(1).bytes(len(good) - 512), "HDF5 whose objects are noise")):
        expect(name + ".keras", why, "hdf5", "model.weights.h5").write_bytes(pack(members() | {"model.weights.h5": data}))
        expect(name + ".weights.h5", why, "hdf5", "weights").write_bytes(data)
    expect("other_model.weights.h5", "the weights of another model", "shape", "layer", "missing").write_bytes((HERE / "models" / "cnn.weights.h5").read_bytes())


def tensors():
    """safetensors files."""
    def raw(name, why, header, body=bytes(16), length=None):
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        size = len(text) if length is None else length
        expect(name + ".safetensors", why, "header", "offset", "shape", "size", "dtype", "safetensors").write_bytes(size.to_bytes(8, "little") + text + body)

    def one(dtype="F32", shape=(4,), offsets=(0, 16)):
        return {"a": {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}}

    raw("header_huge", "a header of 2^63 bytes", one(), length=2**63 - 1)
    raw("header_beyond", "a header longer than the file", one(), length=10_000)
    raw("header_broken", "a header that is no JSON", b"{nothing")
    raw("header_list", "a header that is a list", b"[1, 2]")
    raw("header_deep", "a header of nested lists", b'{"a":' + b"[" * 50_000 + b"]" * 50_000 + b"}")
    raw("offsets_beyond", "an array beyond the end", one(offsets=(0, 1600), shape=(400,)))
    raw("offsets_reversed", "an array that ends before it begins", one(offsets=(16, 0)))
    raw("offsets_negative", "a negative offset", one(offsets=(-16, 0)))
    raw("offsets_shape", "a shape of more bytes than the range", one(shape=(400,)))
    raw("shape_overflow", "a shape whose product overflows to 16 bytes", one(shape=(2**62 + 1, 4)))
    raw("shape_negative", "a negative dimension", one(shape=(-4,)))
    raw("shape_rank", "300 dimensions", one(shape=(1,) * 299 + (4,)))
    raw("dtype_unknown", "a dtype that does not exist", one(dtype="Q99"))
    raw("overlap", "two arrays over the same bytes", one() | {"b": one()["a"]})
    raw("duplicate", "a name that appears twice", json.dumps(one())[:-1].encode() + b"," + json.dumps(one())[1:].encode())
    expect("short.safetensors", "five bytes", "header", "safetensors", "size").write_bytes(b"\1\0\0\0\0")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    for group in (configs, graphs, archives, weights, tensors):
        group()
    (FOLDER / "expected.json").write_text(json.dumps(EXPECTED, indent=1, sort_keys=True) + "\n")
    print(len(EXPECTED), "files,", sum(p.stat().st_size for p in pathlib.Path(FOLDER).iterdir()), "bytes")

use super::*;
use proptest::prelude::*;
use serde_json::json;

fn good() -> Value {
    json!({
        "zarr_format": 3, "node_type": "array", "shape": [10, 20], "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [4, 8]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": "NaN",
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "attributes": {"a": [1]}, "dimension_names": ["x", null], "storage_transformers": [],
        "extra": {"must_understand": false},
    })
}

fn with(key: &str, value: Value) -> Result<Array, ZarrError> {
    let mut document = good();
    match value {
        Value::Null => document.as_object_mut().unwrap().remove(key).map(drop).unwrap_or(()),
        value => document[key] = value,
    }
    Array::parse(document.to_string().as_bytes())
}

fn shard(configuration: Value) -> Value {
    let mut all = json!({
        "chunk_shape": [2, 4], "codecs": ["bytes", {"name": "gzip", "configuration": {"level": 1}}],
        "index_codecs": ["bytes", "crc32c"],
    });
    configuration.as_object().unwrap().iter().for_each(|(k, v)| all[k.as_str()] = v.clone());
    json!([{"name": "sharding_indexed", "configuration": all}])
}

#[test]
fn arrays_are_understood() {
    let array = Array::parse(good().to_string().as_bytes()).unwrap();
    assert_eq!((array.elem, array.chunk.as_slice(), array.chunk_len()), (ElemType::F32, &[4, 8][..], 128));
    assert_eq!(array.key(&[3, 1]), "c/3/1");
    let key = |encoding| with("chunk_key_encoding", encoding).unwrap().key(&[3, 1]);
    assert_eq!(key(json!("default")), "c/3/1");
    assert_eq!(key(json!({"name": "v2"})), "3.1");
    assert_eq!(key(json!({"name": "v2", "configuration": {"separator": "/"}})), "3/1");
    let transpose =
        json!([{"name": "transpose", "configuration": {"order": [1, 0]}}, "bytes", "zstd", "crc32c"]);
    let array = with("codecs", transpose).unwrap();
    assert_eq!((array.order.as_slice(), array.chain.is_plain()), (&[1, 0][..], false));
    let array = with("codecs", shard(json!({}))).unwrap();
    assert_eq!((array.chunk.as_slice(), &array.shards[0].per), (&[2, 4][..], &vec![2, 2]));
    let inner = shard(json!({"chunk_shape": [1, 2], "index_location": "start"}));
    let array = with("codecs", shard(json!({"codecs": inner}))).unwrap();
    let levels: Vec<_> = array.shards.iter().map(|s| (s.per.as_slice(), s.at_end)).collect();
    assert_eq!(
        (array.chunk.as_slice(), levels),
        (&[1, 2][..], vec![(&[2, 2][..], true), (&[2, 2][..], false)])
    );
    let scalar = print(ElemType::U8, &[], &[], &Map::new());
    assert_eq!(Array::parse(scalar.as_bytes()).unwrap().key(&[]), "c");
}

#[test]
fn what_is_wrong_is_named() {
    for (key, value, named) in [
        ("zarr_format", json!(2), "zarr_format"),
        ("node_type", json!("thing"), "node_type"),
        ("shape", json!([1, -1]), "shape"),
        ("shape", json!([1.5, 2]), "shape"),
        ("shape", Value::Null, "shape"),
        ("data_type", json!("string"), "data_type"),
        ("chunk_grid", json!({"name": "rectilinear"}), "chunk_grid"),
        ("chunk_grid", json!({"name": "regular", "configuration": {"chunk_shape": [4]}}), "chunk_shape"),
        ("chunk_grid", json!({"name": "regular", "configuration": {"chunk_shape": [4, 0]}}), "chunk_shape"),
        (
            "chunk_key_encoding",
            json!({"name": "default", "configuration": {"separator": "../"}}),
            "separator",
        ),
        ("chunk_key_encoding", json!("../x"), "chunk_key_encoding"),
        ("fill_value", json!(true), "fill_value"),
        ("fill_value", Value::Null, "fill_value"),
        ("codecs", json!([]), "codecs"),
        ("codecs", json!(["bytes", "delta"]), "\"delta\""),
        ("codecs", json!(["bytes", "bytes"]), "\"bytes\""),
        ("codecs", json!(["gzip", "bytes"]), "\"gzip\""),
        ("codecs", json!([{"name": "transpose", "configuration": {"order": [0, 0]}}, "bytes"]), "transpose"),
        ("codecs", json!([{"name": "transpose", "configuration": {"order": [0, 2]}}, "bytes"]), "transpose"),
        ("codecs", json!([{"name": "bytes", "configuration": {"endian": "middle"}}]), "endian"),
        ("codecs", shard(json!({"chunk_shape": [3, 4]})), "chunk_shape"),
        ("codecs", shard(json!({"codecs": shard(json!({"chunk_shape": [2, 3]}))})), "chunk_shape"),
        (
            "codecs",
            shard(json!({"codecs": ["bytes", "gzip", shard(json!({}))[0]]})),
            "bytes around sharding_indexed",
        ),
        ("codecs", json!([shard(json!({}))[0], "gzip"]), "gzip around sharding_indexed"),
        ("codecs", shard(json!({"index_codecs": ["bytes", "gzip"]})), "index_codecs"),
        ("codecs", shard(json!({"index_location": "middle"})), "index_location"),
        ("storage_transformers", json!([{"name": "x"}]), "storage_transformers"),
        ("extra", json!({"must_understand": true}), "extra"),
    ] {
        let error = with(key, value.clone()).unwrap_err().to_string();
        assert!(error.contains(named), "{key} {value}: {error}");
    }
    assert_eq!(with("node_type", json!("group")), Err(ZarrError::Group));
    assert_eq!(with("shape", json!(vec![1; 10])), Err(ZarrError::Dims { dims: 10, limit: 9 }));
    let huge = json!({"name": "regular", "configuration": {"chunk_shape": [1u64 << 40, 1u64 << 40]}});
    assert!(with("chunk_grid", huge.clone()).is_ok());
    let mut both = good();
    (both["chunk_grid"], both["codecs"]) = (huge, json!(["bytes", "gzip"]));
    let error = Array::parse(both.to_string().as_bytes());
    assert_eq!(error, Err(ZarrError::LargeChunk { len: u64::MAX, limit: MAX_CHUNK_BYTES }));
    let twice = "{\"zarr_format\": 3, \"zarr_format\": 3}";
    assert!(matches!(Array::parse(twice.as_bytes()), Err(ZarrError::Syntax { .. })));
}

#[test]
fn damaged_chunks_are_refused() {
    let chain = with("codecs", json!(["bytes", "gzip", "crc32c"])).unwrap().chain;
    let mut packed = Vec::new();
    let data: Vec<u8> = (0..128).collect();
    let mut gzip = flate2::write::GzEncoder::new(&mut packed, flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &data).unwrap();
    gzip.finish().unwrap();
    packed.extend(crc32c::crc32c(&packed).to_le_bytes());
    assert_eq!(chain.decode(packed.clone(), 128, 4), Ok(data));
    assert_eq!(chain.decode(packed.clone(), 127, 4), Err("expected 127 bytes, found 128".into()));
    for at in 0..packed.len() {
        let mut bad = packed.clone();
        bad[at] ^= 1;
        assert!(chain.decode(bad, 128, 4).is_err(), "{at}");
        assert!(chain.decode(packed[..at].to_vec(), 128, 4).is_err(), "{at}");
    }
    // What decodes to more than there should be is not decoded to its end.
    let mut bomb = Vec::new();
    let mut gzip = flate2::write::GzEncoder::new(&mut bomb, flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &vec![0; 1 << 20]).unwrap();
    gzip.finish().unwrap();
    let chain = with("codecs", json!(["bytes", "gzip"])).unwrap().chain;
    assert_eq!(chain.decode(bomb, 128, 4), Err(format!("Gzip: more than {} bytes", 256 + (64 << 10))));
}

proptest! {
    #[test]
    fn nothing_panics(
        edits in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..6),
        sharded: bool,
        chunk in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut document = good();
        if sharded {
            document["codecs"] = shard(json!({}));
        }
        let mut text = document.to_string().into_bytes();
        for (at, byte) in edits {
            let at = at.index(text.len());
            text[at] = byte;
        }
        let _ = Array::parse(&text);
        for codecs in [json!(["bytes", "zstd"]), json!(["bytes", "gzip"]), json!(["bytes", "crc32c"]), json!(["bytes", "blosc"])] {
            let _ = with("codecs", codecs).unwrap().chain.decode(chunk.clone(), 128, 4);
        }
        let array = with("codecs", shard(json!({}))).unwrap();
        let _ = index_entries(&array.shards[0], chunk);
    }
}

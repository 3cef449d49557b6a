package chat

import (
	"fmt"
	"math"
	"math/big"
)

// dict keeps the order of insertion. Keys that are equal in Python, such as 1, 1.0 and True, are
// the same key.
type dict struct {
	keys   []any
	hashes []any // of keys
	values map[any]any
}

func newDict() *dict { return &dict{values: map[any]any{}} }

// set sets the value of a key with the given hash.
func (d *dict) set(hash, key, value any) {
	if _, there := d.values[hash]; !there {
		d.keys, d.hashes = append(d.keys, key), append(d.hashes, hash)
	}
	d.values[hash] = value
}

// field sets the value of a string key.
func (d *dict) field(name string, value any) { d.set(name, name, value) }

// Hashes of keys that are not strings, numbers or pointers.
type (
	noneHash      struct{}
	undefinedHash struct{}
	compositeHash string // of tuples and big integers
)

// hash returns the hash of a key. An error refuses lists and dicts, like Python.
func (r *renderer) hash(key any, depth int) any {
	r.step(1)
	r.nesting(depth)
	switch k := key.(type) {
	case nil:
		return noneHash{}
	case undefined:
		return undefinedHash{}
	case markup:
		return r.hash(string(k), depth)
	case string:
		r.spend(len(k))
		return k
	case bool:
		n, _ := number(k)
		return n
	case float64:
		if k == math.Trunc(k) && math.Abs(k) < 1<<63 {
			return int64(k)
		}
		return k
	case *big.Int:
		return compositeHash(r.decimal(k))
	case *list:
		if !k.tuple {
			break
		}
		b := r.buffer()
		for _, item := range k.items {
			hash := r.hash(item, depth+1)
			text := fmt.Sprintf("%T %v", hash, hash)
			b.add(fmt.Sprintf("%d:%s", len(text), text))
		}
		return compositeHash("tuple" + b.String())
	case int64, *namespace, *macro, global:
		return key
	}
	switch kind := typeName(key); kind {
	case "list", "dict", "dict_keys", "dict_items":
		r.wrong("a value of the type %s cannot be a key", kind)
	default:
		r.unsupported("a key of the type %s", kind)
	}
	return nil
}

// set sets the value of a key within the bounds.
func (r *renderer) set(d *dict, key, value any) {
	r.spend(64)
	d.set(r.hash(key, 0), key, value)
}

// newFields returns the result of Python's dict(*args, **kwargs).
func (r *renderer) newFields(g given) *dict {
	d := newDict()
	if len(g.placed) > 1 {
		r.wrong("%s with %d values, want at most 1", g.call, len(g.placed))
	}
	if len(g.placed) == 1 {
		r.merge(d, g.placed[0])
	}
	for i, name := range g.names {
		r.set(d, name, g.named[i])
	}
	return d
}

// merge adds the items of a dict, or of a list of pairs.
func (r *renderer) merge(d *dict, from any) {
	if other, isDict := from.(*dict); isDict {
		for i, hash := range other.hashes {
			r.step(1)
			r.spend(64)
			d.set(hash, other.keys[i], other.values[hash])
		}
		return
	}
	if missing, isUndefined := from.(undefined); isUndefined {
		r.wrong("%s is undefined", missing.name)
	}
	for _, item := range r.each(from) {
		pair := r.each(item)
		if len(pair) != 2 {
			r.wrong("an item of a dict has %d parts, want 2", len(pair))
		}
		r.set(d, pair[0], pair[1])
	}
}

// dictMethod calls a method that does not change the dict. The sandbox of transformers refuses
// other methods.
func (r *renderer) dictMethod(d *dict, name string, g given) any {
	switch name {
	case "get":
		args := g.bind("", "")
		if value, there := d.values[r.hash(g.need(args[0]), 0)]; there {
			return value
		}
		return or(args[1], nil)
	case "keys":
		g.bind()
		return &view{kind: "dict_keys", items: d.keys}
	case "values", "items":
		g.bind()
		return r.dictView(d, name)
	case "copy":
		g.bind()
		copied := newDict()
		r.merge(copied, d)
		return copied
	}
	return r.fromKeys(g) // the sandbox hides the other methods
}

// fromKeys implements dict.fromkeys.
func (r *renderer) fromKeys(g given) *dict {
	args, made := g.bind("", ""), newDict()
	for _, key := range r.each(g.need(args[0])) {
		r.set(made, key, or(args[1], nil))
	}
	return made
}

// dictView returns the values or the items of a dict.
func (r *renderer) dictView(d *dict, name string) *view {
	r.spend(64 * len(d.keys))
	all := make([]any, len(d.keys))
	for i, hash := range d.hashes {
		if all[i] = d.values[hash]; name == "items" {
			all[i] = tupleOf(d.keys[i], d.values[hash])
		}
	}
	return &view{kind: "dict_" + name, items: all}
}

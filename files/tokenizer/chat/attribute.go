package chat

import (
	"slices"
	"strings"
)

// pythonNames are the attribute names of Python's values. They are not keys.
var pythonNames = map[string][]string{
	"str":  strings.Fields("capitalize casefold center count encode endswith expandtabs find format format_map index isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace istitle isupper join ljust lower lstrip maketrans partition removeprefix removesuffix replace rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title translate upper zfill"),
	"list": strings.Fields("append clear copy count extend index insert pop remove reverse sort"), "tuple": {"count", "index"},
	"dict":      strings.Fields("clear copy fromkeys get items keys pop popitem setdefault update values"),
	"int":       strings.Fields("as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real to_bytes"),
	"float":     strings.Fields("as_integer_ratio conjugate fromhex from_number hex imag is_integer real"),
	"bool":      strings.Fields("as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag is_integer numerator real to_bytes"),
	rangeType:   strings.Fields("count index start step stop"),
	"dict_keys": {"isdisjoint", "mapping"}, "dict_values": {"mapping"}, "dict_items": {"isdisjoint", "mapping"},
}

// changing are the methods that the sandbox of jinja2 hides because they change a value.
var changing = map[string][]string{
	"list": strings.Fields("append clear extend insert pop remove reverse sort"),
	"dict": strings.Fields("clear pop popitem setdefault update"),
}

// internalNames are the attributes of a dict that the sandbox hides. Other names with underscores are keys.
var internalNames = strings.Fields("__class__ __class_getitem__ __contains__ __delattr__ __delitem__ __dir__ __doc__ __eq__ __format__ __ge__ __getattribute__ __getitem__ __getstate__ __gt__ __hash__ __init__ __init_subclass__ __ior__ __iter__ __le__ __len__ __lt__ __ne__ __new__ __or__ __reduce__ __reduce_ex__ __repr__ __reversed__ __ror__ __setattr__ __setitem__ __sizeof__ __str__ __subclasshook__")

// iteratorNames are the attribute names of Python's generators that the sandbox does not hide.
var iteratorNames = strings.Fields("close gi_running gi_suspended gi_yieldfrom send throw")

// attribute implements value.name: an attribute of Python, or else an item. Attributes that the
// sandbox hides are undefined.
func (r *renderer) attribute(of any, name string) any {
	if missing, isUndefined := of.(undefined); isUndefined {
		r.wrong("%s is undefined, so it has no %s", missing.name, name)
	}
	if value, found := r.ownAttribute(of, name); found {
		return value
	}
	if d, isDict := of.(*dict); isDict {
		if value, there := d.values[name]; there {
			return value
		}
	}
	return undefined{name}
}

// ownAttribute returns an attribute of Python.
func (r *renderer) ownAttribute(of any, name string) (value any, found bool) {
	kind := typeName(of)
	if strings.HasPrefix(name, "__") {
		if _, isDict := of.(*dict); !isDict || slices.Contains(internalNames, name) {
			return undefined{name}, true
		}
	}
	switch v := of.(type) {
	case *namespace:
		value, found = v.fields.values[name]
		return value, found
	case *loop:
		return r.loopField(v, name)
	case *macro:
		return r.macroField(v, name)
	case *cycler:
		return r.cyclerField(v, name)
	case *list:
		if v.group && name == "grouper" {
			return v.items[0], true
		}
		if v.group && name == "list" {
			return v.items[1], true
		}
	case global:
		if v == "dict" && name == "fromkeys" {
			return method{newDict(), name}, true
		}
		if v == "namespace" || v == "cycler" || v == "joiner" {
			r.unsupported("the attribute %s of the function %s", name, v)
		}
		return nil, false
	case *joiner:
		return joinerField(v, name)
	case method:
		return nil, false
	case *iterator:
		if slices.Contains(iteratorNames, name) {
			r.unsupported("the attribute %s of an iterator", name)
		}
		return nil, false
	}
	if !slices.Contains(pythonNames[kind], name) {
		return nil, false
	}
	if slices.Contains(changing[kind], name) {
		return undefined{name}, true
	}
	if name == "mapping" {
		r.unsupported("the attribute mapping of a value of the type %s", kind)
	}
	if value, found := plainAttribute(of, name); found {
		return value, true
	}
	return method{of, name}, true
}

// item implements value[at]: an item, or else an attribute of Python.
func (r *renderer) item(of, at any) any {
	if missing, isUndefined := of.(undefined); isUndefined {
		r.wrong("%s is undefined", missing.name)
	}
	if value, found := r.ownItem(of, at); found {
		return value
	}
	name, isText := str(at)
	if !isText {
		return undefined{"an item"}
	}
	r.read(at)
	if value, found := r.ownAttribute(of, name); found {
		return value
	}
	return undefined{name}
}

// ownItem returns the item of a dict, or the item at an index.
func (r *renderer) ownItem(of, at any) (value any, found bool) {
	if d, isDict := of.(*dict); isDict {
		if r.unhashable(at, 0) {
			return nil, false
		}
		value, found = d.values[r.hash(at, 0)]
		return value, found
	}
	n, isNumber := number(at)
	if !isNumber {
		return nil, false
	}
	if text, isText := str(of); isText {
		r.spend(4 * len(text))
		all := []rune(text)
		if n < 0 {
			n += int64(len(all))
		}
		if n < 0 || n >= int64(len(all)) {
			return nil, false
		}
		return like(of, string(all[n])), true
	}
	items := indexed(of)
	if n < 0 {
		n += int64(len(items))
	}
	if n < 0 || n >= int64(len(items)) {
		return nil, false
	}
	return items[n], true
}

// unhashable reports whether a value cannot be a key.
func (r *renderer) unhashable(value any, depth int) bool {
	r.step(1)
	r.nesting(depth)
	switch v := value.(type) {
	case *dict:
		return true
	case *view:
		return v.isSet()
	case *list:
		return !v.tuple || slices.ContainsFunc(v.items, func(item any) bool { return r.unhashable(item, depth+1) })
	}
	return false
}

// indexed returns the items of a list or a range.
func indexed(of any) []any {
	switch v := of.(type) {
	case *list:
		return v.items
	case *view:
		if v.kind == rangeType {
			return v.items
		}
	}
	return nil
}

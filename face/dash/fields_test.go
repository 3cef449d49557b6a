package dash_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// forgery is a change of one field of a JSON document. Its path has names of object members and indices of lists.
type forgery struct {
	path   []string
	change func(old any) any
	whole  bool // the field is a list, a map or an object
}

func (l forgery) String() string { return strings.Join(l.path, ".") }

// forgeriesOf returns a change of every field of a type's JSON, and of the first element of every list and map.
func forgeriesOf(t reflect.Type, path ...string) (forgeries []forgery) {
	whole := t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Map
	add := func(change func(any) any) { forgeries = append(forgeries, forgery{slices.Clone(path), change, whole}) }
	switch {
	case t == reflect.TypeFor[json.RawMessage]():
		whole = false
		add(func(any) any { return map[string]any{"forgery": 1.0} })
		return forgeries
	case t.Kind() == reflect.Pointer:
		if path != nil {
			add(func(any) any { return nil })
		}
		return append(forgeries, forgeriesOf(t.Elem(), path...)...)
	}
	switch t.Kind() {
	case reflect.Struct:
		for i := range t.NumField() {
			forgeries = append(forgeries, forgeriesOfField(t.Field(i), path)...)
		}
	case reflect.Slice:
		add(func(any) any { return []any{} })
		add(twice)
		forgeries = append(forgeries, forgeriesOf(t.Elem(), append(slices.Clone(path), "0")...)...)
	case reflect.Array:
		for i := range t.Len() {
			forgeries = append(forgeries, forgeriesOf(t.Elem(), append(slices.Clone(path), strconv.Itoa(i))...)...)
		}
	case reflect.Map:
		add(func(any) any { return map[string]any{} })
		forgeries = append(forgeries, forgeriesOf(t.Elem(), append(slices.Clone(path), "*")...)...)
	case reflect.Bool:
		add(func(old any) any { return old != true })
	case reflect.String:
		add(func(old any) any { return fmt.Sprint("a forgery ", old) })
	case reflect.Int, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float64:
		add(func(old any) any { n, _ := old.(float64); return n + 1 })
	default:
		panic(fmt.Sprintf("%s: no change for a %s", strings.Join(path, "."), t))
	}
	return forgeries
}

func forgeriesOfField(f reflect.StructField, path []string) []forgery {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name == "-":
		return nil
	case f.Anonymous && name == "":
		return forgeriesOf(f.Type, path...)
	case name == "":
		name = f.Name
	}
	return forgeriesOf(f.Type, append(slices.Clone(path), name)...)
}

// ofWhole reports whether the forgery changes a complete list, map or object.
func (l forgery) ofWhole() bool { return l.whole }

// overlaps reports whether the path of one forgery is a prefix of the other path.
func (l forgery) overlaps(other forgery) bool {
	n := min(len(l.path), len(other.path))
	return slices.Equal(l.path[:n], other.path[:n])
}

// twice repeats the first element of a list.
func twice(old any) any {
	list, _ := old.([]any)
	if len(list) == 0 {
		return list
	}
	return append([]any{list[0]}, list...)
}

// tell changes a document. It adds missing objects and lists.
func (l forgery) tell(document any) any { return tell(document, l.path, l.change) }

func tell(at any, path []string, change func(any) any) any {
	if len(path) == 0 {
		return change(at)
	}
	if n, err := strconv.Atoi(path[0]); err == nil {
		list, _ := at.([]any)
		for len(list) <= n {
			list = append(list, nil)
		}
		list[n] = tell(list[n], path[1:], change)
		return list
	}
	object, _ := at.(map[string]any)
	if object == nil {
		object = map[string]any{}
	}
	name := path[0]
	if name == "*" {
		name = "a forgery"
		if names := slices.Sorted(maps.Keys(object)); len(names) > 0 {
			name = names[0]
		}
	}
	object[name] = tell(object[name], path[1:], change)
	return object
}

// TestForgeriesOfEveryKindOfField checks that forgeriesOf covers every kind of field.
func TestForgeriesOfEveryKindOfField(t *testing.T) {
	type inner struct {
		N int `json:"n"`
	}
	type outer struct {
		inner
		Text string            `json:"text"`
		List []inner           `json:"list"`
		Map  map[string]uint64 `json:"map,omitempty"`
		At   *inner            `json:"at"`
		Two  [2]float64        `json:"two"`
		Raw  json.RawMessage   `json:"raw"`
		None int               `json:"-"`
	}
	want := []string{
		`n {"list":[{"n":7}],"n":1,"text":"a"}`, `text {"list":[{"n":7}],"text":"a forgery a"}`, `list {"list":[],"text":"a"}`, `list {"list":[{"n":7},{"n":7}],"text":"a"}`,
		`list.0.n {"list":[{"n":8}],"text":"a"}`, `map {"list":[{"n":7}],"map":{},"text":"a"}`, `map.* {"list":[{"n":7}],"map":{"a forgery":1},"text":"a"}`,
		`at {"at":null,"list":[{"n":7}],"text":"a"}`, `at.n {"at":{"n":1},"list":[{"n":7}],"text":"a"}`, `two.0 {"list":[{"n":7}],"text":"a","two":[1]}`,
		`two.1 {"list":[{"n":7}],"text":"a","two":[null,1]}`, `raw {"list":[{"n":7}],"raw":{"forgery":1},"text":"a"}`,
	}
	var got []string
	for _, l := range forgeriesOf(reflect.TypeFor[outer]()) {
		var document any
		if err := json.Unmarshal([]byte(`{"text":"a","list":[{"n":7}]}`), &document); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(l.tell(document))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l.String()+" "+string(text))
	}
	if !slices.Equal(got, want) {
		t.Errorf("forgeries:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

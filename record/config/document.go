package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/psyche-go/psyche/base/filestart"
)

// maxFileSize is the maximum size of a configuration file in bytes. The longest file that the
// original Psyche writes is much smaller: a saved state with 256 clients.
const maxFileSize = 4 << 20

// position is a position in a file. Lines and columns count from 1. The zero position means the
// whole file.
type position struct{ line, column int }

// problem is an error in a file.
type problem struct {
	file string
	position
	text string
}

func (p problem) Error() string {
	if p.line == 0 {
		return p.file + ": " + p.text
	}
	return fmt.Sprintf("%s:%d:%d: %s", p.file, p.line, p.column, p.text)
}

// document is a parsed TOML file with the positions of its keys and a list of its errors.
type document struct {
	file      string
	positions map[string]position // by joined path
	problems  []problem
}

// readFile returns the bytes of a configuration file.
func readFile(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if info.IsDir() {
		return nil, fmt.Errorf("read configuration: %s is a folder, want a TOML file", path)
	}
	if info.Size() > maxFileSize {
		return nil, fmt.Errorf("read configuration %s: %d bytes, the limit is %d", path, info.Size(), maxFileSize)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return text, nil
}

// parse reads TOML and returns its root table.
func parse(file string, text []byte) (*table, error) {
	if len(text) > maxFileSize {
		return nil, problem{file: file, text: fmt.Sprintf("%d bytes, the limit is %d", len(text), maxFileSize)}
	}
	if err := filestart.Check(text); err != nil && !errors.Is(err, filestart.ErrMark) {
		return nil, problem{file: file, text: err.Error()}
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff")) // some editors begin a file with a byte order mark
	values := map[string]any{}
	if err := toml.NewDecoder(bytes.NewReader(text)).Decode(&values); err != nil {
		bad := problem{file: file, text: "not valid TOML: " + err.Error()}
		if at, ok := errors.AsType[*toml.DecodeError](err); ok {
			bad.line, bad.column = at.Position()
			bad.text = "not valid TOML: " + strings.TrimPrefix(at.Error(), "toml: ")
		}
		return nil, bad
	}
	d := &document{file: file, positions: map[string]position{}}
	if err := d.locate(text); err != nil {
		return nil, problem{file: file, text: "not valid TOML: " + err.Error()}
	}
	return &table{document: d, values: values}, nil
}

// join converts a path to one string. No real TOML key contains the separator, and a clash would
// only give a message the wrong position.
func join(path []string) string { return strings.Join(path, "\x00") }

// locate records the start of every table and key in the text.
func (d *document) locate(text []byte) error {
	var parser unstable.Parser
	parser.Reset(text)
	var current []string
	elements := map[string]int{} // number of tables so far in each array of tables
	for parser.NextExpression() {
		switch node := parser.Expression(); node.Kind {
		case unstable.Table:
			current = d.header(&parser, node, elements, false)
		case unstable.ArrayTable:
			current = d.header(&parser, node, elements, true)
		case unstable.KeyValue:
			d.keyValue(&parser, node, current)
		}
	}
	return parser.Error()
}

// header records a [table] or [[array.of.tables]] header and returns its path.
func (d *document) header(parser *unstable.Parser, node *unstable.Node, elements map[string]int, array bool) []string {
	var path []string
	var at position
	for key := node.Key(); key.Next(); {
		path = append(path, string(key.Node().Data))
		at = d.record(parser, key.Node(), path)
		newElement := array && key.IsLast()
		if count := elements[join(path)]; count > 0 && !newElement {
			path = append(path, strconv.Itoa(count-1))
		}
	}
	if array {
		elements[join(path)]++
		path = append(path, strconv.Itoa(elements[join(path)]-1))
		d.positions[join(path)] = at
	}
	return path
}

// keyValue records a key and everything below its value.
func (d *document) keyValue(parser *unstable.Parser, node *unstable.Node, parent []string) {
	path := slices.Clone(parent)
	for key := node.Key(); key.Next(); {
		path = append(path, string(key.Node().Data))
		d.record(parser, key.Node(), path)
	}
	d.value(parser, node.Value(), path)
}

// value records the contents of an inline table or an array.
func (d *document) value(parser *unstable.Parser, node *unstable.Node, path []string) {
	switch node.Kind {
	case unstable.InlineTable:
		for child := node.Children(); child.Next(); {
			d.keyValue(parser, child.Node(), path)
		}
	case unstable.Array:
		children := node.Children()
		for index := 0; children.Next(); index++ {
			element := append(slices.Clone(path), strconv.Itoa(index))
			if child := children.Node(); child.Raw.Length > 0 {
				d.record(parser, child, element)
			} else {
				d.positions[join(element)] = d.positions[join(path)]
			}
			d.value(parser, children.Node(), element)
		}
	}
}

// record records the position of a node, unless an earlier header has set it.
func (d *document) record(parser *unstable.Parser, node *unstable.Node, path []string) position {
	start := parser.Shape(node.Raw).Start
	at := position{line: start.Line, column: start.Column}
	if _, known := d.positions[join(path)]; !known {
		d.positions[join(path)] = at
	}
	return at
}

// at returns the position of a path, or of the nearest table that contains it.
func (d *document) at(path []string) position {
	for ; len(path) > 0; path = path[:len(path)-1] {
		if at, ok := d.positions[join(path)]; ok {
			return at
		}
	}
	return position{}
}

func (d *document) fail(path []string, format string, args ...any) {
	d.problems = append(d.problems, problem{file: d.file, position: d.at(path), text: fmt.Sprintf(format, args...)})
}

// err returns all errors in the file, in the order of their positions.
func (d *document) err() error {
	slices.SortStableFunc(d.problems, func(a, b problem) int {
		return cmp.Or(a.line-b.line, a.column-b.column)
	})
	errs := make([]error, len(d.problems))
	for i, p := range d.problems {
		errs[i] = p
	}
	return errors.Join(errs...)
}

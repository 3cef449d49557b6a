package dash_test

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/dashtest"
)

// module is the import path of the project, whose folder is two levels up.
const module = "github.com/psyche-go/psyche"

// opaque are types whose JSON differs from their Go structure.
var opaque = map[reflect.Type]*jsonschema.Schema{
	reflect.TypeFor[json.RawMessage](): {Description: "The definition of the model, with the keys of [model.LLM] in state.toml."},
}

// TestOpenAPI checks that the description of the page's API has the types of its answers, and that
// real answers match it.
func TestOpenAPI(t *testing.T) {
	s := schemas{types: maps.Clone(opaque), named: make(map[string]*jsonschema.Schema), comments: make(map[string]map[string]string)}
	for name := range dash.Answers {
		s.named[name] = nil // reserve it
	}
	for _, name := range slices.Sorted(maps.Keys(dash.Answers)) {
		answer := dash.Answers[name]
		s.add(t, reflect.TypeOf(answer), name)
	}
	described := describe(t, s.named)
	golden.Compare(t, filepath.Join("..", "assets", "openapi.json"), described)

	web := page(t, dashtest.Options{RunID: "short", Members: 3, Rounds: 4, RoundsPerEpoch: 2},
		dashtest.Options{RunID: "audited", Members: 8, Rounds: 8, RoundsPerEpoch: 4, Audits: 25, Cheat: 2})
	if served := ask(t, web.URL+"/api/openapi.json", nil); !golden.Update() && (served.status != http.StatusOK || served.body != described) {
		t.Errorf("/api/openapi.json: status %d, %d bytes, want the file", served.status, len(served.body))
	}
	for path, name := range map[string]string{"/api/runs": "Runs", "/api/run?run=": "Run", "/api/log?before=5&run=": "Events"} {
		for _, run := range []string{"short", "audited"} {
			if name == "Runs" {
				run = ""
			}
			if err := validate(t, s.named, name, ask(t, web.URL+path+run, nil).body); err != nil {
				t.Errorf("%s%s: %v", path, run, err)
			}
		}
	}
}

// TestPythonProgram runs the program of docs/dashboard.md with a page and a checkpoint.
func TestPythonProgram(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("python3 is missing: the program of docs/dashboard.md was not run")
	}
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "dashboard.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, program, _ := strings.Cut(string(text), "```python\n")
	program, _, found := strings.Cut(program, "```\n")
	if !found {
		t.Fatal("docs/dashboard.md contains no Python program")
	}
	dir := t.TempDir()
	header := `{"__metadata__":{"format":"pt"},"embed":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}`
	content := append(binary.LittleEndian.AppendUint64(nil, uint64(len(header))), header+"12345678"...)
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), content, 0o644); err != nil {
		t.Fatal(err)
	}
	web := page(t, dashtest.Options{RunID: "a run", Members: 3, Rounds: 4, RoundsPerEpoch: 2})
	out, err := exec.CommandContext(t.Context(), python, "-c", program, web.URL, "a run", dir).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if text := string(out); strings.Count(text, " loss ") != 4 || !strings.Contains(text, "step 1 loss 5.4") || !strings.Contains(text, "embed F32 [2, 1]") {
		t.Errorf("the program prints\n%s", text)
	}
}

// describe returns the OpenAPI document: paths.json, with the schemas as its components.
func describe(t *testing.T, named map[string]*jsonschema.Schema) string {
	t.Helper()
	paths, err := os.ReadFile(filepath.Join("testdata", "paths.json"))
	if err != nil {
		t.Fatal(err)
	}
	var document struct {
		OpenAPI    json.RawMessage `json:"openapi"`
		Info       json.RawMessage `json:"info"`
		Paths      json.RawMessage `json:"paths"`
		Components struct {
			Schemas map[string]*jsonschema.Schema `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(paths, &document); err != nil {
		t.Fatal(err)
	}
	document.Components.Schemas = named
	text, err := json.MarshalIndent(document, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text) + "\n"
}

// validate checks an answer against the schema with a name.
func validate(t *testing.T, named map[string]*jsonschema.Schema, name, answer string) error {
	t.Helper()
	text, err := json.Marshal(jsonschema.Schema{Ref: components + name, Defs: named})
	if err != nil {
		t.Fatal(err)
	}
	var root jsonschema.Schema
	if err := json.Unmarshal([]byte(strings.ReplaceAll(string(text), components, "#/$defs/")), &root); err != nil {
		t.Fatal(err)
	}
	resolved, err := root.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	var value any
	if err := json.Unmarshal([]byte(answer), &value); err != nil {
		return err
	}
	return resolved.Validate(value)
}

// components is the place of schemas in an OpenAPI document.
const components = "#/components/schemas/"

// schemas makes JSON schemas of Go types. Each struct type has its own schema, and the comments of its
// fields are the descriptions.
type schemas struct {
	types    map[reflect.Type]*jsonschema.Schema // for references
	named    map[string]*jsonschema.Schema
	comments map[string]map[string]string // by package and TYPE.FIELD
}

// add adds a type and the types of its fields. If name is empty, add chooses a name.
func (s *schemas) add(t *testing.T, of reflect.Type, name string) {
	t.Helper()
	switch of.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		s.add(t, of.Elem(), name)
	case reflect.Struct:
		if s.types[of] != nil || of.Name() == "" {
			return
		}
		described := make(map[string]string)
		s.fields(t, of, described)
		schema, err := jsonschema.ForType(of, &jsonschema.ForOptions{TypeSchemas: s.types})
		if err != nil {
			t.Fatalf("%v: %v", of, err)
		}
		for key, property := range schema.Properties {
			description := cmp.Or(described[key], property.Description)
			if property.Ref != "" && len(property.Types) > 0 { // a reference, or null
				*property = jsonschema.Schema{AnyOf: []*jsonschema.Schema{{Ref: property.Ref}, {Type: "null"}}}
			}
			property.Description = description
		}
		schema.AdditionalProperties = nil // a later version may have more
		name = cmp.Or(name, s.name(of))
		s.named[name], s.types[of] = schema, &jsonschema.Schema{Ref: components + name}
	}
}

// fields adds the types of a struct's fields, and collects their comments by their names in JSON.
func (s *schemas) fields(t *testing.T, of reflect.Type, described map[string]string) {
	t.Helper()
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case field.Anonymous:
			s.fields(t, field.Type, described)
		default:
			s.add(t, field.Type, "")
			described[name] = s.comment(t, of, field.Name)
		}
	}
}

// name returns a name for a type, with its package if another type has the same name.
func (s *schemas) name(of reflect.Type) string {
	name := strings.ToUpper(of.Name()[:1]) + of.Name()[1:]
	if _, taken := s.named[name]; taken {
		folder := path.Base(of.PkgPath())
		name = strings.ToUpper(folder[:1]) + folder[1:] + name
	}
	return name
}

// comment returns the comment of a field in the source.
func (s *schemas) comment(t *testing.T, of reflect.Type, field string) string {
	t.Helper()
	all := s.comments[of.PkgPath()]
	if all == nil {
		all = make(map[string]string)
		files, err := filepath.Glob(filepath.Join("..", "..", strings.TrimPrefix(of.PkgPath(), module), "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			collect(parsed, all)
		}
		s.comments[of.PkgPath()] = all
	}
	return all[of.Name()+"."+field]
}

// collect collects the comments of all fields of a file.
func collect(file *ast.File, into map[string]string) {
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok {
			return true
		}
		if structure, ok := spec.Type.(*ast.StructType); ok {
			for _, field := range structure.Fields.List {
				text := strings.Join(strings.Fields(field.Doc.Text()+field.Comment.Text()), " ")
				for _, name := range field.Names {
					into[spec.Name.Name+"."+name.Name] = text
				}
			}
		}
		return true
	})
}

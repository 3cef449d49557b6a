package config

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/pelletier/go-toml/v2"
)

// readers contains the functions and methods by which the parser reads keys. Each value is the
// number of arguments before the first name.
var readers = map[string]int{
	"has": 0, "read": 0, "required": 0, "table": 0, "sub": 0, "bool": 0, "float": 0, "floatOr": 0, "text": 0,
	"nonEmpty": 0, "seed": 0, "variant": 0, "in": 0, "seconds": 0, "secondsOr": 0,
	"number": 1, "numberOr": 1, "oneOf": 1,
}

// firstOnly contains the readers whose later string arguments are not names of keys or kinds.
var firstOnly = []string{"sub", "text", "nonEmpty", "floatOr"}

// sections maps each function to the heading in docs/configuration.md of the section that documents
// its keys. Other functions of datalocations.go belong to the section of readDataLocation.
var sections = map[string]string{
	"readRun": "The top level", "readDiscarded": "The top level",
	"readProgress": "`[progress]`", "readConfig": "`[config]`", "readModel": "`[model.LLM]`",
	"readCheckpoint": "`checkpoint`", "readHubRepo": "`checkpoint`", "readGcsRepo": "`checkpoint`",
	"readDataLocations": "`[model.LLM]`", "readDataLocation": "`data_location`", "readDummyData": "`data_location`",
	"readServerData": "`data_location`", "readLocalData": "`data_location`", "readHTTPTable": "`data_location`",
	"readTokenSize": "`data_location`", "readShuffle": "`data_location`", "dataKinds": "`data_location`",
	"readLRSchedule": "`lr_schedule`", "total": "`lr_schedule`", "readOptimizer": "`optimizer`", "readBetas": "`optimizer`", "readLocalSteps": "`optimizer`",
	"parseDataServer": "`data.toml`", "readServedFolder": "`data.toml`",
	"ParseMix": "The mixture of a `WeightedHttp` location", "readProviders": "The mixture of a `WeightedHttp` location",
}

// name matches a key or a kind.
var name = regexp.MustCompile(`[A-Za-z][A-Za-z0-9_]+`)

// parsedNames returns the keys and kinds that the parser of this package knows, by the function
// that reads them.
func parsedNames(t *testing.T) map[string][]string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]string{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "table.go" || file == "check.go" { // the readers themselves, and a file that reads no configuration
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range parsed.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				function := d.Name.Name
				if _, listed := sections[function]; !listed && file == "datalocations.go" {
					function = "readDataLocation"
				}
				ast.Inspect(d, func(n ast.Node) bool {
					if call, ok := n.(*ast.CallExpr); ok {
						found[function] = append(found[function], namesIn(call)...)
					}
					return true
				})
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if value, ok := spec.(*ast.ValueSpec); ok && value.Names[0].Name == "dataKinds" {
						found["dataKinds"] = literals(value.Values[0].(*ast.CompositeLit).Elts)
					}
				}
			}
		}
	}
	return found
}

// namesIn returns the names among the arguments of a call, if the called function is a reader.
func namesIn(call *ast.CallExpr) []string {
	called := call.Fun
	if generic, ok := called.(*ast.IndexExpr); ok {
		called = generic.X
	}
	reader := ""
	switch called := called.(type) {
	case *ast.Ident:
		reader = called.Name
	case *ast.SelectorExpr:
		reader = called.Sel.Name
	}
	skip, ok := readers[reader]
	if reader == "textOr" {
		skip, ok = 0, true
	}
	if !ok || len(call.Args) <= skip {
		return nil
	}
	args := call.Args[skip:]
	if slices.Contains(firstOnly, reader) || reader == "textOr" {
		args = args[:1]
	}
	return literals(args)
}

// literals returns the string literals among the expressions that may be names.
func literals(expressions []ast.Expr) []string {
	var texts []string
	for _, e := range expressions {
		if literal, ok := e.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil && name.FindString(text) == text {
				texts = append(texts, text)
			}
		}
	}
	return texts
}

// documented returns the names that a section documents: the words in code spans of its heading and
// tables, and the words in code spans of its text that begin with a capital. Kinds begin with a
// capital, keys do not.
func documented(heading, body string) map[string]bool {
	words := map[string]bool{}
	for line := range strings.Lines(heading + "\n" + body) {
		inTable := strings.HasPrefix(line, "|") || line == heading+"\n"
		for i, code := range strings.Split(line, "`") {
			for _, word := range name.FindAllString(code, -1) {
				if i%2 == 1 && (inTable || unicode.IsUpper(rune(word[0]))) {
					words[word] = true
				}
			}
		}
	}
	return words
}

// TestEveryKeyIsDocumented checks that docs/configuration.md documents every key and kind of the
// parser, in the right section.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	page := map[string]map[string]bool{}
	for section := range strings.SplitSeq(string(text), "\n## ") {
		heading, body, _ := strings.Cut(section, "\n")
		page[heading] = documented(heading, body)
	}
	found := parsedNames(t)
	for function, names := range found {
		section := sections[function]
		if len(names) > 0 && page[section] == nil {
			t.Errorf("%s reads %q: add the section of docs/configuration.md that documents them to sections", function, names)
			continue
		}
		for _, name := range names {
			if !page[section][name] {
				t.Errorf("section %s of docs/configuration.md does not document %s, which %s reads", section, name, function)
			}
		}
	}
	checkSamplesAreFound(t, found)
}

// checkSamplesAreFound checks that parsedNames found every key of the samples. A missing key means
// that the search does not cover all readers of the parser.
func checkSamplesAreFound(t *testing.T, found map[string][]string) {
	all := slices.Concat(slices.Collect(maps.Values(found))...)
	var walk func(file string, value any)
	walk = func(file string, value any) {
		switch value := value.(type) {
		case map[string]any:
			for key, inner := range value {
				if !slices.Contains(all, key) {
					t.Errorf("%s has the key %s, which parsedNames did not find: add its reader to readers", file, key)
				}
				if key != "epoch_state" { // this test does not read its content
					walk(file, inner)
				}
			}
		case []any:
			for _, inner := range value {
				walk(file, inner)
			}
		}
	}
	for _, file := range samples(t) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var root map[string]any
		if err := toml.Unmarshal(text, &root); err != nil {
			t.Fatal(err)
		}
		walk(file, root)
	}
}

package psyche

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// TestFuzzTargetsRunInTests checks that every fuzz target passes its property to fuzztest.Run,
// which also tries generated inputs in ordinary test runs.
func TestFuzzTargetsRunInTests(t *testing.T) {
	targets := 0
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != "." && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "build" || entry.Name() == "testdata"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			function, ok := decl.(*ast.FuncDecl)
			if !ok || function.Recv != nil || !strings.HasPrefix(function.Name.Name, "Fuzz") {
				continue
			}
			targets++
			if calls := callsIn(function); calls["f.Fuzz"] || !calls["fuzztest.Run"] && filepath.ToSlash(filepath.Dir(path)) != "base/fuzztest" {
				t.Errorf("%s: %s must call fuzztest.Run, not f.Fuzz", path, function.Name.Name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if targets < 80 {
		t.Errorf("%d fuzz targets found", targets)
	}
}

// callsIn returns the selectors that a function calls, such as f.Add.
func callsIn(function *ast.FuncDecl) map[string]bool {
	calls := make(map[string]bool)
	ast.Inspect(function, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		if selector, ok := call.Fun.(*ast.SelectorExpr); ok {
			if of, ok := selector.X.(*ast.Ident); ok {
				calls[of.Name+"."+selector.Sel.Name] = true
			}
		}
		return true
	})
	return calls
}

package psyche

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Limits for the tour of a round, so that a reader need not open more files.
const (
	maxTourFiles    = 12
	maxTourPackages = 8
)

// stop is a line of the tour: a function and its caller.
type stop struct {
	folder, name string // of the function, such as client, Node.Run
	by           string // interface through which it is called, such as node/env.Trainer; empty means directly
	caller       *stop  // nil if code outside the tour calls it
}

func (s stop) String() string { return s.folder + "." + s.name }

var tourLine = regexp.MustCompile("^( *)- `([a-z0-9/]+)\\.([A-Za-z.]+)`(?:, by `([a-z0-9/]+\\.[A-Za-z]+)`)?: .+$")

// tour reads the list of docs/architecture.md, In the code.
func tour(t *testing.T) []*stop {
	t.Helper()
	const path = "docs/architecture.md"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n### In the code\n")
	section, _, _ = strings.Cut(section, "\n#")
	var stops, above []*stop // above contains the newest stop of each depth
	for line := range strings.Lines(section) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(strings.TrimSpace(line), "- ") {
			continue
		}
		found := tourLine.FindStringSubmatch(line)
		if found == nil || len(found[1])%2 != 0 || len(found[1])/2 > len(above) {
			t.Fatalf("%s: %q is not a stop of the tour", path, line)
		}
		next := &stop{folder: found[2], name: found[3], by: found[4]}
		above = above[:len(found[1])/2]
		if len(above) > 0 {
			next.caller = above[len(above)-1]
		}
		stops, above = append(stops, next), append(above, next)
	}
	if len(stops) < 20 {
		t.Fatalf("%s: the tour has %d stops: are these all?", path, len(stops))
	}
	return stops
}

// source contains the functions of some packages, with the objects that they refer to.
type source struct {
	files     *token.FileSet
	functions map[string]*ast.FuncDecl  // by name, as in the tour
	packages  map[string]*types.Package // by their folder
	info      *types.Info
	importer  types.Importer
}

// readSource reads packages with the types of everything that they use.
func readSource(t *testing.T, folders []string) *source {
	t.Helper()
	arguments := []string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles,CgoFiles"}
	for _, folder := range folders {
		arguments = append(arguments, "./"+folder)
	}
	command := exec.CommandContext(t.Context(), "go", arguments...)
	command.Stderr = t.Output()
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	exports, dirs := map[string]string{}, map[string][]string{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg struct {
			ImportPath, Dir, Export string
			GoFiles, CgoFiles       []string
		}
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[pkg.ImportPath] = pkg.Export
		for _, name := range slices.Concat(pkg.GoFiles, pkg.CgoFiles) {
			dirs[pkg.ImportPath] = append(dirs[pkg.ImportPath], filepath.Join(pkg.Dir, name))
		}
	}
	s := &source{
		files: token.NewFileSet(), functions: map[string]*ast.FuncDecl{}, packages: map[string]*types.Package{},
		info: &types.Info{Uses: map[*ast.Ident]types.Object{}},
	}
	s.importer = importer.ForCompiler(s.files, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, folder := range folders {
		var files []*ast.File
		for _, path := range dirs[module+"/"+folder] {
			file, err := parser.ParseFile(s.files, path, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
			for _, declared := range file.Decls {
				if f, ok := declared.(*ast.FuncDecl); ok {
					s.functions[folder+"."+nameOf(f)] = f
				}
			}
		}
		checker := types.Config{Importer: s.importer, FakeImportC: true}
		pkg, err := checker.Check(module+"/"+folder, s.files, files, s.info)
		if err != nil {
			t.Fatal(err)
		}
		s.packages[folder] = pkg
	}
	return s
}

// nameOf returns the name of a function, preceded by the name of its receiver's type.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	receiver := f.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	return fmt.Sprintf("%s.%s", receiver, f.Name.Name)
}

// uses reports whether a function refers to the named function or method, which may be a method of
// an interface.
func (s *source) uses(in *ast.FuncDecl, name string) bool {
	found := false
	ast.Inspect(in.Body, func(n ast.Node) bool {
		if ident, ok := n.(*ast.Ident); ok {
			if f, ok := s.info.Uses[ident].(*types.Func); ok {
				found = found || strings.NewReplacer("(", "", ")", "", "*", "", module+"/", "").Replace(f.FullName()) == name
			}
		}
		return !found
	})
	return found
}

// implements returns an error if a type cannot be called through an interface. Both have the names
// in the list.
func (s *source) implements(of, by string) error {
	var found [2]types.Type
	for i, name := range []string{of, by} {
		folder, name, _ := strings.Cut(name, ".")
		pkg := s.packages[folder] // export data may lack unexported types
		if !strings.HasPrefix(of, folder+".") || !strings.HasPrefix(by, folder+".") {
			var err error
			if pkg, err = s.importer.Import(module + "/" + folder); err != nil {
				return err
			}
		}
		object := pkg.Scope().Lookup(name)
		if object == nil {
			return fmt.Errorf("no %s.%s", folder, name)
		}
		found[i] = object.Type()
	}
	face, ok := found[1].Underlying().(*types.Interface)
	if !ok {
		return fmt.Errorf("%s is not an interface", by)
	}
	scope := found[0].(*types.Named).Obj().Pkg().Scope()
	for _, name := range scope.Names() { // the type itself, or a type that embeds it
		if t := scope.Lookup(name).Type(); (t == found[0] || embeds(t, found[0])) && types.Implements(types.NewPointer(t), face) {
			return nil
		}
	}
	return fmt.Errorf("%s does not implement %s", of, by)
}

// embeds reports whether a struct embeds another struct, or a pointer to it.
func embeds(t, other types.Type) bool {
	fields, ok := t.Underlying().(*types.Struct)
	if !ok {
		return false
	}
	for field := range fields.Fields() {
		of := field.Type()
		if pointer, ok := of.(*types.Pointer); ok {
			of = pointer.Elem()
		}
		if field.Embedded() && of == other {
			return true
		}
	}
	return false
}

// TestTour follows a round by the list of docs/architecture.md. Every function must exist, and each
// must call the functions listed below it. The list must be short, and doc.go must name its
// packages.
func TestTour(t *testing.T) {
	stops := tour(t)
	var folders []string
	for _, s := range stops {
		if !slices.Contains(folders, s.folder) {
			folders = append(folders, s.folder)
		}
	}
	code := readSource(t, folders)
	files := map[string]bool{}
	for _, s := range stops {
		declared := code.functions[s.String()]
		if declared == nil {
			t.Errorf("no function %s", s)
			continue
		}
		files[code.files.Position(declared.Pos()).Filename] = true
		if s.caller == nil || code.functions[s.caller.String()] == nil {
			continue
		}
		called := s.String()
		if s.by != "" {
			kind, method, _ := strings.Cut(s.name, ".")
			if err := code.implements(s.folder+"."+kind, s.by); err != nil {
				t.Errorf("%s: %v", s, err)
			}
			called = s.by + "." + method
		}
		if !code.uses(code.functions[s.caller.String()], called) {
			t.Errorf("%s does not call %s", s.caller, called)
		}
	}
	t.Logf("%d stops in %d files of %d packages", len(stops), len(files), len(folders))
	if len(files) > maxTourFiles || len(folders) > maxTourPackages {
		t.Errorf("the tour has %d files of %d packages, want at most %d and %d", len(files), len(folders), maxTourFiles, maxTourPackages)
	}
	if named := packagesOfDoc(t); !slices.Equal(named, folders) {
		t.Errorf("doc.go lists the packages %v, the tour has %v", named, folders)
	}
}

// TestFilesReferOneWay checks that the files of some packages do not refer to each other in a cycle, so
// that a reader can read them in an order.
func TestFilesReferOneWay(t *testing.T) {
	for _, folder := range []string{"node/client", "node/core", "node/models", "learn/train"} {
		code := readSource(t, []string{folder})
		left := map[string]map[string]bool{} // files, each with the files that it refers to
		for name, object := range code.info.Uses {
			if object.Pkg() != code.packages[folder] || !object.Pos().IsValid() {
				continue
			}
			from, to := filepath.Base(code.files.Position(name.Pos()).Filename), filepath.Base(code.files.Position(object.Pos()).Filename)
			for _, file := range []string{from, to} {
				if left[file] == nil {
					left[file] = map[string]bool{}
				}
			}
			left[from][to] = true
		}
		if len(left) < 2 {
			t.Errorf("%s has %d files", folder, len(left))
		}
		for removed := true; removed; {
			removed = false
			for file, below := range left {
				delete(below, file)
				for other := range below {
					if left[other] == nil {
						delete(below, other)
					}
				}
				if len(below) == 0 {
					delete(left, file)
					removed = true
				}
			}
		}
		if len(left) > 0 {
			t.Errorf("%s: some of these files refer to each other in a cycle: %v", folder, slices.Sorted(maps.Keys(left)))
		}
	}
}

// packagesOfDoc returns the packages of the list in doc.go.
func packagesOfDoc(t *testing.T) (named []string) {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`(?m)^//\t([a-z0-9/]+) {2,}`).FindAllSubmatch(text, -1) {
		named = append(named, string(found[1]))
	}
	return named
}

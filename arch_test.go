package psyche

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/psyche-go/psyche"

// layers are the top-level folders that contain Go, each with a line about
// its contents. A package imports packages from its own layer and from the layers before it.
var layers = []struct{ name, holds string }{
	{"base", "code without runs: keys, locks, strict JSON"},
	{"core", "the rules of a run, the arithmetic of audits, the bytes of a result"},
	{"record", "the records of a run, written and read"},
	{"net", "bytes between peers that do not trust each other"},
	{"files", "tokens, tokenizers, checkpoints, the Hub, buckets"},
	{"learn", "tensors, models, the optimizer, training, evaluation"},
	{"host", "hosts of a run's state: their core, a server, memory"},
	{"chain", "the host on Solana"},
	{"node", "a member of a run"},
	{"face", "user interfaces"},
	{"proof", "simulator, whole processes, benchmarks"},
	{"cmd", "the two programs"},
}

// importRule is a restriction beyond the order of the layers: packages that match from must never
// reach packages that match never, directly or indirectly.
type importRule struct {
	name   string
	from   func(pkg string) bool
	never  func(pkg string) bool
	reason string
}

// under matches the packages of this module in any of the given folders and below them.
func under(folders ...string) func(string) bool {
	return func(pkg string) bool {
		for _, folder := range folders {
			path := module + "/" + folder
			if pkg == path || strings.HasPrefix(pkg, path+"/") {
				return true
			}
		}
		return false
	}
}

func anyOf(paths ...string) func(string) bool {
	return func(pkg string) bool { return slices.Contains(paths, pkg) }
}

func but(match func(string) bool, paths ...string) func(string) bool {
	return func(pkg string) bool { return match(pkg) && !slices.Contains(paths, pkg) }
}

func either(matches ...func(string) bool) func(string) bool {
	return func(pkg string) bool {
		return slices.ContainsFunc(matches, func(match func(string) bool) bool { return match(pkg) })
	}
}

// forTests reports whether only tests may use a package: the name of one of its folders ends with
// test, or it is one of four other packages.
func forTests(pkg string) bool {
	folders := strings.Split(strings.TrimPrefix(pkg, module+"/"), "/")
	return strings.HasPrefix(pkg, module+"/") &&
		slices.ContainsFunc(folders, func(folder string) bool { return strings.HasSuffix(folder, "test") }) ||
		under("base/golden", "files/objstore/gcs/fakegcs", "host/memory", "node/memnet")(pkg)
}

var importRules = []importRule{
	{
		name:   "the programs contain no code for tests",
		from:   under("cmd/psyche", "cmd/psyche-client"),
		never:  forTests,
		reason: "only the other packages are the product",
	},
	{
		name:   "the core reads no clock",
		from:   under("core"),
		never:  anyOf("C", "runtime/cgo", "net", "time", "math/rand", "math/rand/v2"),
		reason: "hosts, verifiers, jurors and readers of a log must compute the same results",
	},
	{
		name:   "hosts and nodes do not need libtorch",
		from:   either(but(under("record", "net", "files", "host", "chain", "node", "face"), module+"/node/member"), under("proof/sim", "cmd/psyche")),
		never:  either(under("learn/torch", "learn/model", "learn/train", "node/member", "cmd/psyche-client"), anyOf(module+"/learn/distro")),
		reason: "node logic must be testable without libtorch, and hosts must stay static",
	},
	{
		name:   "records are data",
		from:   under("record/follow", "record/wire", "host/core", "chain/layout", "chain/event", "chain/replay", "chain/program"),
		never:  either(under("net", "host/server", "host/tcp", "chain/rpc"), anyOf("net", "net/http", "C")),
		reason: "a log, an account or a journal must be readable from any source",
	},
	{
		name:   "the network carries bytes",
		from:   under("net/p2p"),
		never:  under("core", "record"),
		reason: "the network must not depend on training",
	},
	{
		name:   "learning does not use the network",
		from:   under("learn"),
		never:  under("net", "record/backend", "files/hub", "files/checkpoint/remote"),
		reason: "the trainer must also run alone",
	},
	{
		name:   "a member's trainer uses only the node's interfaces",
		from:   anyOf(module + "/node/member"),
		never:  either(but(under("node"), module+"/node/env"), under("net", "host", "files/hub", "files/checkpoint/remote")),
		reason: "it only connects the trainer and the node, which are independent of each other",
	},
	{
		name:   "a chain does not depend on runs",
		from:   under("chain/sbpf", "chain/localnet"),
		never:  either(under("core", "record", "chain/layout", "chain/program", "chain/event", "chain/replay", "chain/rpc"), anyOf("C")),
		reason: "tests of runs are only meaningful on a chain that does not know runs",
	},
	{
		name:   "the Hub depends on files, not runs",
		from:   under("files/hub"),
		never:  under("core/coordinator", "record", "files/checkpoint"),
		reason: "its protocol has nothing to do with training",
	},
	{
		name: "cloud drivers are leaves",
		from: func(pkg string) bool {
			return strings.HasPrefix(pkg, module) && !under("cmd", "files/objstore/gcs")(pkg)
		},
		never:  either(but(under("files/objstore/gcs"), module+"/files/objstore/gcs/fakegcs"), anyOf("cloud.google.com/go/storage")),
		reason: "only commands import drivers, and pass on an objstore.Store",
	},
}

// nodePackages are the packages next to node/client, each with the packages of node that it may
// import: docs/architecture.md, The node.
var nodePackages = map[string][]string{
	"env":       nil,
	"auditor":   {"tally", "env", "exchange", "fetch"},
	"tally":     nil,
	"core":      nil,
	"credits":   nil,
	"exchange":  {"tally", "env"},
	"fetch":     {"tally", "env"},
	"keep":      {"env"},
	"models":    {"core"},
	"modelsync": {"core", "env", "exchange", "keep"},
}

// tallyImports are the only packages that node/tally may import directly, because it is pure. It
// uses only the types of package time, see TestPurePackagesReadNoClock.
var tallyImports = []string{
	"bytes", "cmp", "crypto/sha256", "encoding/binary", "errors", "fmt", "slices", "sort", "time",
	module + "/base/identity", module + "/core/assign", module + "/core/bloom", module + "/core/coordinator", module + "/core/merkle", module + "/record/wire",
}

// hostImports are the only packages that host/core may import directly, because it is pure too.
var hostImports = []string{
	"errors", "fmt", "net/netip", "slices", "time",
	module + "/base/identity", module + "/core/coordinator", module + "/record/follow", module + "/record/wire",
}

// memberImports are the only packages that node/core may import directly, because it is pure too.
var memberImports = []string{
	"bytes", "crypto/sha256", "encoding/binary", "errors", "fmt", "maps", "math", "math/bits", "slices", "time",
	module + "/base/hashchain", module + "/core/assign", module + "/core/coordinator", module + "/record/config",
}

// modelsImports are the only packages that node/models may import directly, because it is pure too: of
// package checkpoint it uses only types.
var modelsImports = []string{
	"cmp", "slices", "time",
	module + "/core/coordinator", module + "/files/checkpoint", module + "/node/core",
}

// coreImports are the only packages outside the core that the core may import directly. The imports
// of these standard packages are not checked (crypto/sha256 has many).
var coreImports = []string{"bytes", "cmp", "crypto/sha256", "encoding/binary", "errors", "iter", "math", "math/bits", "slices", "sort", "strconv", "strings"}

// Limits for package client.
const (
	maxNodeFields  = 15
	maxNodeMethods = 58 // also counts functions that see a Node
	maxReaching    = 12 // other functions that reach three parts of a Node
)

type goPackage struct {
	ImportPath string
	Imports    []string
	CgoFiles   []string
}

// goList returns the packages of the module and everything they import. cgo is on, so that every
// file counts.
func goList(t *testing.T) map[string]goPackage {
	t.Helper()
	command := exec.Command("go", "list", "-deps", "-json=ImportPath,Imports,CgoFiles", "./...")
	command.Env = append(os.Environ(), "CGO_ENABLED=1")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	packages := map[string]goPackage{}
	for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
		var pkg goPackage
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return packages
		} else if err != nil {
			t.Fatalf("read go list: %v", err)
		}
		packages[pkg.ImportPath] = pkg
	}
}

// chain returns the shortest path of imports within this module from a package to a forbidden
// package, or nil.
func chain(packages map[string]goPackage, from string, never func(string) bool) []string {
	type step struct{ path []string }
	seen := map[string]bool{from: true}
	for queue := []step{{[]string{from}}}; len(queue) > 0; queue = queue[1:] {
		path := queue[0].path
		imports := slices.Clone(packages[path[len(path)-1]].Imports)
		slices.Sort(imports)
		for _, next := range imports {
			if never(next) {
				return append(slices.Clone(path), next)
			}
			if !seen[next] && strings.HasPrefix(next, module) {
				seen[next] = true
				queue = append(queue, step{append(slices.Clone(path), next)})
			}
		}
	}
	return nil
}

// layerOf returns the layer of a package in this module.
func layerOf(pkg string) (name string) {
	folder, _ := strings.CutPrefix(pkg, module+"/")
	if folder != pkg {
		name, _, _ = strings.Cut(folder, "/")
	}
	return name
}

// TestLayersImportDownwards checks every import between two layers, and that every package is in a
// layer.
func TestLayersImportDownwards(t *testing.T) {
	height := map[string]int{}
	for i, w := range layers {
		height[w.name] = i + 1
	}
	for path, pkg := range goList(t) {
		if !strings.HasPrefix(path, module+"/") {
			continue
		}
		if height[layerOf(path)] == 0 {
			t.Errorf("%s is in no layer", path)
		}
		for _, imported := range pkg.Imports {
			if strings.HasPrefix(imported, module+"/") && height[layerOf(imported)] > height[layerOf(path)] {
				t.Errorf("%s imports %s: layer %s is below layer %s", path, imported, layerOf(path), layerOf(imported))
			}
		}
	}
}

func TestImportsRunOneWay(t *testing.T) {
	packages := goList(t)
	for _, rule := range importRules {
		t.Run(rule.name, func(t *testing.T) {
			for path := range packages {
				if !rule.from(path) {
					continue
				}
				if bad := chain(packages, path, rule.never); bad != nil {
					t.Errorf("%s\n\tbecause %s", strings.Join(bad, "\n\timports "), rule.reason)
				}
			}
		})
	}
}

func TestCoreImportsOnlyPurePackages(t *testing.T) {
	core := under("core/coordinator", "core/assign", "core/bloom", "core/merkle")
	for path, pkg := range goList(t) {
		if !core(path) {
			continue
		}
		for _, imported := range pkg.Imports {
			if !core(imported) && !slices.Contains(coreImports, imported) {
				t.Errorf("%s imports %s: the core may import %v", path, imported, coreImports)
			}
		}
	}
}

// TestPackagesOfTheNodeImportOneWay checks every import between the packages of node.
func TestPackagesOfTheNodeImportOneWay(t *testing.T) {
	packages := goList(t)
	for name, allowed := range nodePackages {
		pkg, found := packages[module+"/node/"+name]
		if !found {
			t.Errorf("no package node/%s", name)
		}
		for _, imported := range pkg.Imports {
			below, within := strings.CutPrefix(imported, module+"/node")
			if within && !slices.Contains(allowed, strings.TrimPrefix(below, "/")) {
				t.Errorf("node/%s imports node%s: it may import %v", name, below, allowed)
			}
		}
	}
}

// TestPurePackagesImportLittle checks the direct imports of the packages without I/O.
func TestPurePackagesImportLittle(t *testing.T) {
	packages := goList(t)
	for name, allowed := range map[string][]string{"node/tally": tallyImports, "host/core": hostImports, "node/core": memberImports, "node/models": modelsImports} {
		for _, imported := range packages[module+"/"+name].Imports {
			if !slices.Contains(allowed, imported) {
				t.Errorf("%s imports %s: it may import %v", name, imported, allowed)
			}
		}
	}
}

// TestPurePackagesReadNoClock checks that pure packages receive the time as an argument and start no
// goroutines.
func TestPurePackagesReadNoClock(t *testing.T) {
	types := []string{"Time", "Duration", "Nanosecond", "Microsecond", "Millisecond", "Second", "Minute", "Hour"}
	for _, name := range []string{"node/tally", "host/core", "node/core", "node/models"} {
		for _, file := range parsed(t, name) {
			ast.Inspect(file, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.GoStmt, *ast.SelectStmt, *ast.SendStmt:
					t.Errorf("%s: %T", name, n)
				case *ast.SelectorExpr:
					if pkg, ok := n.X.(*ast.Ident); ok && pkg.Name == "time" && !slices.Contains(types, n.Sel.Name) {
						t.Errorf("%s uses time.%s", name, n.Sel.Name)
					}
				}
				return true
			})
		}
	}
}

// TestCodeThatSeesAllOfAClientIsBounded limits the code that sees all of a client: the methods of
// Node, the methods of every type that holds a Node, and the functions with a Node parameter. Put
// new code into another package of node.
func TestCodeThatSeesAllOfAClientIsBounded(t *testing.T) {
	fields, methods := 0, 0
	holders := map[string]bool{"Node": true}
	files := parsed(t, "node/client")
	for _, file := range files {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			kind, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range kind.Fields.List {
				if spec.Name.Name == "Node" {
					fields += max(1, len(field.Names))
				}
				holders[spec.Name.Name] = holders[spec.Name.Name] || named(field.Type) == "Node"
			}
			return true
		})
	}
	for _, file := range files {
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			given := function.Type.Params.List
			if function.Recv != nil {
				given = append(function.Recv.List, given...)
			}
			if slices.ContainsFunc(given, func(f *ast.Field) bool { return holders[named(f.Type)] }) {
				methods++
			}
		}
	}
	if fields == 0 || fields > maxNodeFields || methods == 0 || methods > maxNodeMethods {
		t.Errorf("client.Node has %d fields, and %d functions see one; at most %d and %d are allowed", fields, methods, maxNodeFields, maxNodeMethods)
	}
}

// TestPartsOfAClientAreSeparate limits the number of functions that reach three or more parts of a client
// without a Node, for example through a struct of pointers. A part is the type of a field of Node, and the
// types of that type's fields. A function reaches a part if its receiver or a parameter leads to the part.
func TestPartsOfAClientAreSeparate(t *testing.T) {
	const folder = "node/client"
	own := readSource(t, []string{folder}).packages[folder]
	node := own.Scope().Lookup("Node").Type()
	parts := map[types.Type]string{}
	for field := range fields(node) {
		if name := field.Name(); !field.Embedded() && name != "tasks" && name != "end" {
			parts[element(field.Type())] = name
		}
	}
	for part, name := range maps.Clone(parts) {
		for field := range fields(part) {
			if of, is := element(field.Type()).(*types.Named); is && parts[of] == "" && (of.Obj().Pkg() == own || field.Embedded()) {
				parts[of] = name
			}
		}
	}
	var reaching []string
	seen := 0
	for _, function := range functionsOf(own) {
		signature := function.Signature()
		reached, visited := map[string]bool{}, map[types.Type]bool{}
		if signature.Recv() != nil {
			reach(signature.Recv().Type(), own, parts, visited, reached)
		}
		for parameter := range signature.Params().Variables() {
			reach(parameter.Type(), own, parts, visited, reached)
		}
		if visited[node] {
			seen++
		} else if len(reached) >= 3 {
			reaching = append(reaching, function.FullName())
		}
	}
	if seen == 0 || len(reaching) > maxReaching {
		t.Errorf("%d functions reach three parts of a client, at most %d are allowed:\n%s", len(reaching), maxReaching, strings.Join(reaching, "\n"))
	}
}

// functionsOf returns the functions and methods of a package.
func functionsOf(pkg *types.Package) (all []*types.Func) {
	for _, name := range pkg.Scope().Names() {
		switch object := pkg.Scope().Lookup(name).(type) {
		case *types.Func:
			all = append(all, object)
		case *types.TypeName:
			if named, is := object.Type().(*types.Named); is {
				all = slices.AppendSeq(all, named.Methods())
			}
		}
	}
	return all
}

// fields returns the fields of a type; none if it is not a struct.
func fields(of types.Type) iter.Seq[*types.Var] {
	if kind, is := of.Underlying().(*types.Struct); is {
		return kind.Fields()
	}
	return func(func(*types.Var) bool) {}
}

// element returns the element of a pointer type. It returns any other type unchanged.
func element(of types.Type) types.Type {
	if pointer, is := types.Unalias(of).(*types.Pointer); is {
		return types.Unalias(pointer.Elem())
	}
	return types.Unalias(of)
}

// reach adds to reached the parts that a type leads to through pointers, slices, maps, and the fields of
// the package's types.
func reach(of types.Type, own *types.Package, parts map[types.Type]string, visited map[types.Type]bool, reached map[string]bool) {
	of = element(of)
	if visited[of] {
		return
	}
	visited[of] = true
	switch kind := of.(type) {
	case *types.Slice:
		reach(kind.Elem(), own, parts, visited, reached)
	case *types.Map:
		reach(kind.Elem(), own, parts, visited, reached)
	case *types.Named:
		if name := parts[kind]; name != "" {
			reached[name] = true
		}
		if kind.Obj().Pkg() == own {
			for field := range fields(kind) {
				reach(field.Type(), own, parts, visited, reached)
			}
		}
	}
}

// named returns the name of a type of this package. For a pointer, it returns the name of the type it points to.
func named(of ast.Expr) string {
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	if name, ok := of.(*ast.Ident); ok {
		return name.Name
	}
	return ""
}

// parsed returns the files of a folder except tests.
func parsed(t *testing.T, folder string) []*ast.File {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var files []*ast.File
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	if len(files) == 0 {
		t.Fatalf("no files in %s", folder)
	}
	return files
}

func TestOnlyLearningUsesCgo(t *testing.T) {
	learning := under("learn", "cmd/psyche-client")
	for path, pkg := range goList(t) {
		if strings.HasPrefix(path, module) && len(pkg.CgoFiles) > 0 && !learning(path) {
			t.Errorf("%s uses cgo in %v", path, pkg.CgoFiles)
		}
	}
}

// TestPackagesAreDocumented requires exactly one package comment in every folder, which must name
// its package.
func TestPackagesAreDocumented(t *testing.T) {
	for path := range goList(t) {
		if !strings.HasPrefix(path, module) {
			continue
		}
		folder := "." + strings.TrimPrefix(path, module)
		files, err := filepath.Glob(filepath.Join(folder, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var documented []string
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			if hasPackageComment(t, file) {
				documented = append(documented, file)
			}
		}
		if len(documented) != 1 {
			t.Errorf("%s: want one package comment, in doc.go, found %d: %v", folder, len(documented), documented)
		}
	}
}

func hasPackageComment(t *testing.T, file string) bool {
	t.Helper()
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range strings.Split(string(source), "\n") {
		if strings.HasPrefix(line, "package ") {
			return false
		}
		if strings.HasPrefix(line, "// Package ") || strings.HasPrefix(line, "// Command ") {
			return true
		}
	}
	return false
}

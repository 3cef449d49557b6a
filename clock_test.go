package psyche

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wallClock has the uses of the wall clock in code with timeouts. Times from these functions have no reading of the
// monotonic clock: a timeout that follows them changes when the clock is set.
var wallClock = map[string]string{
	"node/auditor/evidence.go":          "compares the change times of files with each other",
	"node/core/commitments.go":          "makes numbers of commitments differ between starts",
	"node/client/report.go":             "prints a time of the host",
	"base/pause/requested.go":           "compares two dates of a server with each other",
	"files/checkpoint/remote/bucket.go": "writes the time of an upload",
	"files/data/prepare/journal.go":     "compares the change times of files with each other",
	"net/accept/conn.go":                "a deadline in 1970 ends a read at once",
	"net/p2p/bulk_conn.go":              "a deadline in 1970 ends a read at once",
	"net/p2p/pace.go":                   "a deadline in 1970 ends a read at once",
	"net/secure/secure.go":              "dates of a certificate that is valid at any time",
	"host/core/host.go":                 "nonces rise between starts, and follow the log if the clock went back",
	"host/tcp/client.go":                "nonces rise between starts, and follow the host if the clock went back",
	"host/server/wake.go":               "the time of actions: the start by the wall clock, and the monotonic clock from there",
	"host/server/status/status.go":      "prints times of the host",
}

// wallFunctions make times without the monotonic clock, or numbers of the wall clock.
var wallFunctions = []string{"Unix", "UnixNano", "UnixMilli", "UnixMicro", "Date", "Parse", "ParseInLocation", "ParseTime", "UTC", "Local", "In"}

// TestTimeoutsFollowTheMonotonicClock finds uses of the wall clock in members, hosts, readers of data and their connections.
func TestTimeoutsFollowTheMonotonicClock(t *testing.T) {
	used := map[string]bool{}
	for _, top := range []string{"node", "net", "host", "base/pause", "files/data", "files/hub", "files/objstore", "files/checkpoint/remote"} {
		err := filepath.WalkDir(top, func(path string, entry os.DirEntry, err error) error {
			if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasSuffix(filepath.Dir(path), "test") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			name := filepath.ToSlash(path)
			ast.Inspect(file, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				selector, ok := call.Fun.(*ast.SelectorExpr)
				if !ok || !isWall(selector, call.Args) {
					return true
				}
				if used[name] = true; wallClock[name] == "" {
					t.Errorf("%s uses %s, a time without the monotonic clock", name, selector.Sel.Name)
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for name := range wallClock {
		if !used[name] {
			t.Errorf("%s does not use the wall clock any more; remove it from the list", name)
		}
	}
}

// isWall reports whether a call uses one of wallFunctions, or Round(0).
func isWall(of *ast.SelectorExpr, arguments []ast.Expr) bool {
	if of.Sel.Name == "Round" {
		zero, ok := arguments[0].(*ast.BasicLit)
		return ok && zero.Value == "0"
	}
	if pkg, ok := of.X.(*ast.Ident); ok && pkg.Name != "time" && slices.Contains([]string{"Date", "Parse"}, of.Sel.Name) {
		return false
	}
	return slices.Contains(wallFunctions, of.Sel.Name)
}

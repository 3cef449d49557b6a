package psyche

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestNoticeNamesEveryModule wants NOTICE to have each module that is linked into a program, with a
// licence, and no other one.
func TestNoticeNamesEveryModule(t *testing.T) {
	text, err := os.ReadFile("NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "says where.\n\n")
	list, _, _ = strings.Cut(list, "\nModules whose own NOTICE")
	var named []string
	lines := strings.Split(list, "\n")
	for i, line := range lines {
		if line == "" || strings.HasPrefix(line, " ") {
			continue
		}
		named = append(named, line)
		if i+1 == len(lines) || !strings.HasPrefix(lines[i+1], "    ") || strings.TrimSpace(lines[i+1]) == "" {
			t.Errorf("NOTICE says no licence of %s", line)
		}
	}
	for _, module := range linkedModules(t) {
		if !slices.Contains(named, module) {
			t.Errorf("NOTICE does not name %s: add it with its licence", module)
		}
		named = slices.DeleteFunc(named, func(name string) bool { return name == module })
	}
	if len(named) > 0 {
		t.Errorf("NOTICE names modules that no program contains: %s", strings.Join(named, ", "))
	}
}

// linkedModules returns the modules of others that the two programs contain.
func linkedModules(t *testing.T) (modules []string) {
	t.Helper()
	for program, cgo := range map[string]string{"./cmd/psyche": "0", "./cmd/psyche-client": "1"} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", program)
		list.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		out, err := list.Output()
		if err != nil {
			t.Fatalf("go list %s: %v", program, err)
		}
		modules = append(modules, strings.Fields(string(out))...)
	}
	slices.Sort(modules)
	return slices.Compact(modules)
}

// TestLicence wants the text of the licence that README and the packages name.
func TestLicence(t *testing.T) {
	for file, want := range map[string]string{
		"LICENSE": "Apache License\n                           Version 2.0, January 2004", "README.md": "[Apache-2.0](LICENSE)",
		"packaging/deb/copyright": "License: Apache-2.0",
	} {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not say %q (%v)", file, want, err)
		}
	}
}

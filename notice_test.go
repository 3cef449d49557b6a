package psyche

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestNoticeNamesEveryModule checks that NOTICE lists exactly the modules that are linked into a
// program, each with a licence.
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
			t.Errorf("NOTICE contains no licence for %s", line)
		}
	}
	for _, module := range linkedModules(t) {
		if !slices.Contains(named, module) {
			t.Errorf("NOTICE does not name %s: add it with its licence", module)
		}
		named = slices.DeleteFunc(named, func(name string) bool { return name == module })
	}
	if len(named) > 0 {
		t.Errorf("NOTICE lists modules that no program contains: %s", strings.Join(named, ", "))
	}
}

// TestLicencesAreComplete checks that for each program there is a licence text for every module
// that it contains.
func TestLicencesAreComplete(t *testing.T) {
	for program, cgo := range programs {
		script := exec.CommandContext(t.Context(), "scripts/licences.sh", program)
		script.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
		text, err := script.Output()
		if err != nil {
			t.Fatalf("%s: %v", program, err)
		}
		for _, module := range append(modulesOf(t, program, cgo), "Go") {
			if !strings.Contains(string(text), "\n"+module+" v") && !strings.Contains(string(text), "\n"+module+"\n") {
				t.Errorf("%s: no licence for %s", program, module)
			}
		}
		for _, words := range []string{"Apache License", "Permission is hereby granted, free of charge", "Redistributions in binary form must reproduce"} {
			if !strings.Contains(string(text), words) {
				t.Errorf("%s: no licence contains %q", program, words)
			}
		}
	}
}

// programs maps each program to whether it is built with cgo.
var programs = map[string]string{"./cmd/psyche": "0", "./cmd/psyche-client": "1"}

// linkedModules returns the third-party modules in the two programs.
func linkedModules(t *testing.T) (modules []string) {
	t.Helper()
	for program, cgo := range programs {
		modules = append(modules, modulesOf(t, program, cgo)...)
	}
	slices.Sort(modules)
	return slices.Compact(modules)
}

func modulesOf(t *testing.T, program, cgo string) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}}{{end}}{{end}}", program)
	list.Env = append(os.Environ(), "CGO_ENABLED="+cgo)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("go list %s: %v", program, err)
	}
	modules := strings.Fields(string(out))
	slices.Sort(modules)
	return slices.Compact(modules)
}

// TestLicence checks the text of the licence that README and the packages name.
func TestLicence(t *testing.T) {
	for file, want := range map[string]string{
		"LICENSE": "Apache License\n                           Version 2.0, January 2004", "README.md": "[Apache-2.0](LICENSE)",
		"packaging/deb/copyright": "License: Apache-2.0",
	} {
		text, err := os.ReadFile(file)
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s does not contain %q (%v)", file, want, err)
		}
	}
}

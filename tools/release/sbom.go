package main

import (
	"bytes"
	"cmp"
	"debug/buildinfo"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// inventory returns a list of a program's parts in the format CycloneDX: Go, its modules, and the
// shared libraries of the archive.
func inventory(s source, program, executable string, libraries []library) ([]byte, error) {
	info, err := buildinfo.ReadFile(executable)
	if err != nil {
		return nil, err
	}
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{
		Timestamp: s.time.Format(time.RFC3339),
		Component: &cyclonedx.Component{BOMRef: program, Type: cyclonedx.ComponentTypeApplication, Name: program, Version: s.version,
			PackageURL: goURL(module, "v"+s.version)},
	}
	components := []cyclonedx.Component{part(cyclonedx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"), goURL("std", strings.TrimPrefix(info.GoVersion, "go")))}
	for _, m := range info.Deps {
		m = cmp.Or(m.Replace, m)
		components = append(components, part(cyclonedx.ComponentTypeLibrary, m.Path, m.Version, goURL(m.Path, m.Version)))
	}
	components = append(components, parts(libraries)...)
	slices.SortFunc(components, func(a, b cyclonedx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	components = slices.CompactFunc(components, func(a, b cyclonedx.Component) bool { return a.BOMRef == b.BOMRef })
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	bom.Components = &components
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: program, Dependencies: &refs}}
	var out bytes.Buffer
	if err := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// parts returns the packages of shared libraries, or the libraries that are in no package.
func parts(libraries []library) []cyclonedx.Component {
	var all []cyclonedx.Component
	for _, l := range libraries {
		if l.from == (debian{}) {
			all = append(all, part(cyclonedx.ComponentTypeLibrary, l.name, "", "pkg:generic/"+url.PathEscape(l.name)))
			continue
		}
		all = append(all, part(cyclonedx.ComponentTypeLibrary, l.from.name, l.from.version,
			"pkg:deb/debian/"+url.PathEscape(l.from.name)+"@"+url.QueryEscape(l.from.version)+"?arch=amd64"))
	}
	return all
}

func part(kind cyclonedx.ComponentType, name, version, address string) cyclonedx.Component {
	return cyclonedx.Component{BOMRef: address, Type: kind, Name: name, Version: version, PackageURL: address}
}

// goURL returns the package URL of a Go module.
func goURL(path, version string) string {
	return "pkg:golang/" + path + "@" + url.QueryEscape(version)
}

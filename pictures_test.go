package psyche

import (
	"encoding/xml"
	"os"
	"slices"
	"strings"
	"testing"
)

// picture is the content of docs/pictures/layers.svg.
type picture struct {
	Layers []struct {
		ID    string `xml:"id,attr"`
		Texts []struct {
			Class string `xml:"class,attr"`
			Text  string `xml:",chardata"`
		} `xml:"text"`
	} `xml:"g"`
	Arrows []struct {
		From string `xml:"data-from,attr"`
		To   string `xml:"data-to,attr"`
	} `xml:"path"`
}

// TestLayersAreDrawn compares the picture of the layers with the imports of their packages. Every
// arrow must be an import. Every import between two layers must be an arrow, or follow from several
// arrows.
func TestLayersAreDrawn(t *testing.T) {
	const path = "docs/pictures/layers.svg"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var drawn picture
	if err := xml.Unmarshal(text, &drawn); err != nil {
		t.Fatal(err)
	}
	packages := goList(t)
	var names []string
	for _, w := range drawn.Layers {
		names = append(names, w.ID)
		for _, text := range w.Texts {
			for name := range strings.FieldsSeq(text.Text) {
				if _, err := os.Stat(w.ID + "/" + name); err != nil && text.Class == "packages" {
					t.Errorf("%s draws %s/%s: %v", path, w.ID, name, err)
				}
			}
		}
	}
	for _, w := range layers {
		if !slices.Contains(names, w.name) {
			t.Errorf("%s does not contain the layer %s", path, w.name)
		}
	}
	imports := map[[2]string]string{} // an example import for each pair of layers
	for name, pkg := range packages {
		if strings.HasSuffix(name, "test") {
			continue
		}
		for _, imported := range pkg.Imports {
			if from, to := layerOf(name), layerOf(imported); from != "" && to != "" && to != from {
				imports[[2]string{from, to}] = name + " imports " + imported
			}
		}
	}
	arrows := map[string][]string{}
	for _, arrow := range drawn.Arrows {
		arrows[arrow.From] = append(arrows[arrow.From], arrow.To)
		if imports[[2]string{arrow.From, arrow.To}] == "" {
			t.Errorf("%s has an arrow from %s to %s, which is not an import", path, arrow.From, arrow.To)
		}
	}
	for between, example := range imports {
		if !leads(arrows, between[0], between[1]) {
			t.Errorf("%s has no path from %s to %s: %s", path, between[0], between[1], example)
		}
	}
}

// leads reports whether arrows lead from one layer to another.
func leads(arrows map[string][]string, from, to string) bool {
	seen := map[string]bool{}
	for queue := slices.Clone(arrows[from]); len(queue) > 0; queue = queue[1:] {
		if queue[0] == to {
			return true
		}
		if !seen[queue[0]] {
			seen[queue[0]] = true
			queue = append(queue, arrows[queue[0]]...)
		}
	}
	return false
}

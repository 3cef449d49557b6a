package psyche

import (
	"encoding/xml"
	"os"
	"slices"
	"strings"
	"testing"
)

// picture is what docs/pictures/rooms.svg says of the packages.
type picture struct {
	Rooms []struct {
		ID       string `xml:"id,attr"`
		Packages string `xml:"data-packages,attr"`
	} `xml:"g"`
	Arrows []struct {
		From string `xml:"data-from,attr"`
		To   string `xml:"data-to,attr"`
	} `xml:"path"`
}

// TestRoomsAreDrawn compares the picture of the rooms with the imports of their packages: every
// arrow is an import, and every import between two rooms is an arrow, or follows from several.
func TestRoomsAreDrawn(t *testing.T) {
	const path = "docs/pictures/rooms.svg"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var drawn picture
	if err := xml.Unmarshal(text, &drawn); err != nil {
		t.Fatal(err)
	}
	folders := map[string]string{} // of a folder, the room
	arrows := map[string][]string{}
	for _, room := range drawn.Rooms {
		for folder := range strings.FieldsSeq(room.Packages) {
			folders[folder] = room.ID
		}
	}
	imports := map[[2]string]string{} // between two rooms: an example
	packages := goList(t)
	for folder := range folders {
		if _, found := packages[module+"/"+folder]; !found {
			t.Errorf("%s draws the package %s, which is not there", path, folder)
		}
	}
	for name, pkg := range packages {
		from := roomOf(name, folders)
		if from == "" || strings.HasSuffix(name, "test") {
			continue
		}
		for _, imported := range pkg.Imports {
			if to := roomOf(imported, folders); to != "" && to != from {
				imports[[2]string{from, to}] = name + " imports " + imported
			}
		}
	}
	for _, arrow := range drawn.Arrows {
		arrows[arrow.From] = append(arrows[arrow.From], arrow.To)
		if imports[[2]string{arrow.From, arrow.To}] == "" {
			t.Errorf("%s has an arrow from %s to %s, which is no import", path, arrow.From, arrow.To)
		}
	}
	if len(drawn.Rooms) < 15 || len(drawn.Arrows) < 20 {
		t.Errorf("%s has %d rooms and %d arrows: are these all?", path, len(drawn.Rooms), len(drawn.Arrows))
	}
	for between, example := range imports {
		if !leads(arrows, between[0], between[1]) {
			t.Errorf("%s has no way from %s to %s: %s", path, between[0], between[1], example)
		}
	}
}

// roomOf returns the room of a package: that of the longest folder that it lies in.
func roomOf(name string, folders map[string]string) string {
	folder, ours := strings.CutPrefix(name, module+"/")
	for ours {
		if room := folders[folder]; room != "" {
			return room
		}
		end := strings.LastIndexByte(folder, '/')
		if end < 0 {
			break
		}
		folder = folder[:end]
	}
	return ""
}

// leads reports whether arrows lead from one room to another.
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

package tokens

import (
	"cmp"
	"path"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/files/data/walk"
)

// Extensions are the extensions of token files in folders and buckets.
var Extensions = []string{".ds", ".bin", ".npy"}

// HeldOut is the folder of tokens that are never used for training; files/data/prepare writes it.
const HeldOut = "heldout"

// IsTokenFile reports whether name is the path of a token file for training, relative to the data's
// folder and with slashes. A path with a hidden name (walk.Hidden) is not.
func IsTokenFile(name string) bool {
	folders := strings.Split(name, "/")
	return slices.Contains(Extensions, path.Ext(name)) && !slices.Contains(folders[:len(folders)-1], HeldOut) && !slices.ContainsFunc(folders, walk.Hidden)
}

// Compare compares names in natural order: a run of decimal digits counts as one number, and all
// other text is compared byte by byte. Names that differ only by leading zeros are ordered by their
// bytes.
func Compare(a, b string) int {
	for i, j := 0, 0; ; {
		if i == len(a) || j == len(b) {
			if order := cmp.Compare(len(a)-i, len(b)-j); order != 0 {
				return order
			}
			return strings.Compare(a, b)
		}
		if isDigit(a[i]) && isDigit(b[j]) {
			first, second := digits(a[i:]), digits(b[j:])
			if order := compareNumbers(first, second); order != 0 {
				return order
			}
			i, j = i+len(first), j+len(second)
			continue
		}
		if a[i] != b[j] {
			return cmp.Compare(a[i], b[j])
		}
		i, j = i+1, j+1
	}
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// digits returns the run of digits at the start of a text.
func digits(text string) string {
	end := 0
	for end < len(text) && isDigit(text[end]) {
		end++
	}
	return text[:end]
}

func compareNumbers(a, b string) int {
	a, b = strings.TrimLeft(a, "0"), strings.TrimLeft(b, "0")
	if order := cmp.Compare(len(a), len(b)); order != 0 {
		return order
	}
	return strings.Compare(a, b)
}

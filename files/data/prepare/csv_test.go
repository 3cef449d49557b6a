package prepare

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/fuzztest"
)

// TestCSVAgreesWithDatasets compares the values of files that are easy to misread
// (testdata/csv.py). Numbers, and words that datasets treats as missing values, are text.
func TestCSVAgreesWithDatasets(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join("testdata", "csv.json"))
	if err != nil {
		t.Fatal(err)
	}
	var expected struct {
		Missing []string
		Files   map[string][]any
	}
	if err := json.Unmarshal(raw, &expected); err != nil {
		t.Fatal(err)
	}
	if len(expected.Missing) != 18 || len(expected.Files) != 10 {
		t.Errorf("%d words, %d files", len(expected.Missing), len(expected.Files))
	}
	for name, values := range expected.Files {
		texts := cellsOf(t, filepath.Join("testdata", "csv", name))
		if len(texts) != len(values) {
			t.Errorf("%s: %d texts, datasets has %d values", name, len(texts), len(values))
			continue
		}
		for i, value := range values {
			ok := false
			switch value := value.(type) {
			case nil:
				ok = texts[i] == "" || slices.Contains(expected.Missing, texts[i])
			case string:
				ok = texts[i] == value
			case float64:
				number, err := strconv.ParseFloat(texts[i], 64)
				ok = err == nil && number == value
			}
			if !ok {
				t.Errorf("%s: value %d is %q, datasets has %v", name, i, texts[i], value)
			}
		}
	}
}

// cellsOf returns the values of the column "text".
func cellsOf(t *testing.T, path string) (texts []string) {
	t.Helper()
	r, err := Options{Field: "text", Quotes: quotesDouble}.open(t.Context(), source{path: path, format: formatCSV}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	for {
		s, err := r.next()
		if errors.Is(err, io.EOF) {
			return texts
		}
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		texts = append(texts, string(s.text))
	}
}

var returns = regexp.MustCompile(`\r+\n`)

// FuzzQuotedReturns compares records with encoding/csv, except for line breaks. Records that are
// written and read again must be equal.
func FuzzQuotedReturns(f *testing.F) {
	f.Add("a,b\r\n\"x\r\ny\",\"\"\"\r\n\"\"\"\r\n")
	f.Add("\"a\r\r\n\",b\n\r\n\"\r\",\"\n\"")
	fuzztest.Run(f, func(t *testing.T, text string) {
		plain, wantErr := csv.NewReader(strings.NewReader(text)).ReadAll()
		got, err := csv.NewReader(iotest.OneByteReader(&quotedReturns{from: iotest.HalfReader(strings.NewReader(text))})).ReadAll()
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("%q: %v, without: %v", text, err, wantErr)
		}
		if err != nil {
			return
		}
		var written strings.Builder
		for _, record := range got {
			for i, value := range record {
				if i > 0 {
					written.WriteByte(',')
				}
				written.WriteString(`"` + strings.ReplaceAll(value, `"`, `""`) + `"`)
			}
			written.WriteString("\r\n")
		}
		again, err := csv.NewReader(&quotedReturns{from: strings.NewReader(written.String())}).ReadAll()
		if diff := cmp.Diff(got, again); err != nil || diff != "" {
			t.Fatalf("%q is read differently: %v, %s", text, err, diff)
		}
		for i := range got {
			for j := range got[i] {
				got[i][j] = returns.ReplaceAllString(got[i][j], "\n")
				plain[i][j] = returns.ReplaceAllString(plain[i][j], "\n")
			}
		}
		if diff := cmp.Diff(plain, got); diff != "" {
			t.Fatalf("%q: got %s; want \"\"", text, diff)
		}
	})
}

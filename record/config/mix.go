package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
)

const (
	maxMixSize    = 1 << 20
	maxMixSources = 256
)

// Mix is the content of the JSON file of a WeightedHttp location.
type Mix struct {
	Shuffle Shuffle // of the order of the sources
	Sources []HTTPData
	Weights []string // decimal numbers, one for each source; nil: proportional to their lengths
}

// ParseMix parses the text of a mix. file is its name in errors.
//
// "providers" is either a list of locations, or a list of pairs of a location and its weight. A
// location has the keys of an Http location in a state.toml.
func ParseMix(file string, text []byte) (Mix, error) {
	d := &document{file: file, positions: map[string]position{}}
	if len(text) > maxMixSize {
		return Mix{}, problem{file: file, text: fmt.Sprintf("%d bytes, the limit is %d", len(text), maxMixSize)}
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var root map[string]any
	err := decoder.Decode(&root)
	if err == nil {
		if _, extra := decoder.Token(); !errors.Is(extra, io.EOF) {
			err = errors.New("more text follows it")
		}
	}
	if err != nil {
		return Mix{}, problem{file: file, text: "not a JSON object: " + err.Error()}
	}
	t := &table{document: d, values: root}
	mix := Mix{Shuffle: readShuffle(&table{document: d, values: numbers(root).(map[string]any)})}
	t.has("shuffle")
	readProviders(t, &mix)
	t.done()
	return mix, d.err()
}

func readProviders(t *table, mix *Mix) {
	value, ok := t.required("providers")
	if !ok {
		return
	}
	entries, ok := value.([]any)
	if !ok || len(entries) == 0 || len(entries) > maxMixSources {
		t.fail("providers", "want an array of 1 to %d locations", maxMixSources)
		return
	}
	elements := &table{document: t.document, path: t.below("providers")}
	for i, entry := range entries {
		key := strconv.Itoa(i)
		pair, weighted := entry.([]any)
		if i > 0 && weighted != (mix.Weights != nil) {
			elements.fail(key, "either all locations have a weight, or none")
			return
		}
		if weighted {
			weight, ok := json.Number(""), len(pair) == 2
			if ok {
				weight, ok = pair[1].(json.Number)
			}
			if !ok {
				elements.fail(key, "want a pair of a location and its weight")
				return
			}
			entry, mix.Weights = pair[0], append(mix.Weights, weight.String())
		}
		location, ok := elements.sub(key, numbers(entry))
		if !ok {
			return
		}
		data := readHTTPTable(location)
		for _, fault := range (DataLocation{HTTP: data}).check() {
			if len(t.problems) == 0 {
				elements.fail(key, "%s: %s", fault.key, fault.text)
			}
		}
		mix.Sources = append(mix.Sources, *data)
	}
}

// numbers converts the integers in a JSON value to the type that a TOML parser returns.
func numbers(value any) any {
	switch value := value.(type) {
	case json.Number:
		if whole, err := value.Int64(); err == nil {
			return whole
		}
		return value.String()
	case []any:
		converted := make([]any, len(value))
		for i, element := range value {
			converted[i] = numbers(element)
		}
		return converted
	case map[string]any:
		converted := make(map[string]any, len(value))
		for key, element := range value {
			converted[key] = numbers(element)
		}
		return converted
	default:
		return value
	}
}

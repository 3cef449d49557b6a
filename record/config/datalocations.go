package config

import (
	"net"
	"net/url"
	"strconv"

	"github.com/psyche-go/psyche/base/identity"
)

var dataKinds = []string{"Http", "Local", "Server", "WeightedHttp", "Preprocessed", "Dummy"}

// readDataLocations reads data_location, or data_locations in the order of preference.
func readDataLocations(t *table) []DataLocation {
	single, list := t.has("data_location"), t.has("data_locations")
	switch {
	case single && list:
		t.fail("data_locations", "data_location is there as well; keep one of them")
		return nil
	case single:
		return []DataLocation{readDataLocation(t, "data_location", t.values["data_location"])}
	case !list:
		t.document.fail(t.path, `%s: missing key "data_location" (or "data_locations", a list in fall-back order)`, t.name())
		return nil
	}
	entries, ok := t.values["data_locations"].([]any)
	if !ok {
		t.fail("data_locations", "want an array of locations, found %s", describe(t.values["data_locations"]))
		return nil
	}
	if len(entries) == 0 || len(entries) > maxLocations {
		t.fail("data_locations", "%d locations, want 1 to %d", len(entries), maxLocations)
		return nil
	}
	// The elements are read as keys "0", "1", ... of a table, so that error messages have their
	// positions.
	elements := &table{document: t.document, path: t.below("data_locations")}
	locations := make([]DataLocation, len(entries))
	for i, entry := range entries {
		locations[i] = readDataLocation(elements, strconv.Itoa(i), entry)
	}
	return locations
}

func readDataLocation(t *table, key string, value any) DataLocation {
	chosen, ok := t.toVariant(key, value, dataKinds)
	if !ok {
		return DataLocation{}
	}
	switch chosen.name {
	case "Dummy":
		return DataLocation{Dummy: readDummyData(chosen)}
	case "Server":
		return DataLocation{Server: readServerData(chosen)}
	case "Local":
		return DataLocation{Local: readLocalData(chosen)}
	case "WeightedHttp":
		return DataLocation{WeightedHTTP: &WeightedHTTPData{URL: readURL(chosen)}}
	case "Preprocessed":
		return DataLocation{Preprocessed: &PreprocessedData{Path: chosen.text(maxURL)}}
	default:
		return DataLocation{HTTP: readHTTPData(chosen)}
	}
}

func readDummyData(chosen variant) *DummyData {
	if chosen.outer == nil {
		return &DummyData{}
	}
	return &DummyData{Failing: oneOf(chosen.outer, chosen.name, "Working", "Failing") == "Failing"}
}

// readServerData reads `Server = "host:port"`, or a table that also contains the server's key.
func readServerData(chosen variant) *ServerData {
	t, key, data := chosen.outer, chosen.name, &ServerData{}
	if t == nil {
		chosen.text(maxName) // reports the missing name
		return data
	}
	if _, ok := t.values[chosen.name].(map[string]any); ok {
		v, ok := chosen.body()
		if !ok {
			return data
		}
		defer v.done()
		t, key = v, "addr"
		data.Key = v.nonEmpty("key", maxName)
		if _, err := identity.ParseID(data.Key); data.Key != "" && err != nil {
			v.fail("key", "want the server's key in base58, as its log has it: %v", err)
		}
	}
	data.Addr = t.nonEmpty(key, maxName)
	if data.Addr == "" {
		return data
	}
	if host, port, err := net.SplitHostPort(data.Addr); err != nil || host == "" || port == "" {
		t.fail(key, "%q is not host:port", data.Addr)
	}
	return data
}

// readLocalData reads `Local = "dir"`, or a table with all three settings. The first form means
// two-byte tokens in the order of the files.
func readLocalData(chosen variant) *LocalData {
	if chosen.outer != nil {
		if _, ok := chosen.outer.values[chosen.name].(string); !ok {
			v, ok := chosen.body()
			if !ok {
				return &LocalData{}
			}
			defer v.done()
			return &LocalData{Path: v.nonEmpty("path", maxURL), TokenSize: readTokenSize(v), Shuffle: readShuffle(v)}
		}
	}
	return &LocalData{Path: chosen.text(maxURL), TokenSize: TwoBytes}
}

func readURL(chosen variant) string {
	address := chosen.text(maxURL)
	if address != "" && !isWebAddress(address) {
		chosen.outer.fail(chosen.name, "%q is not an http:// or https:// address", address)
	}
	return address
}

// readURLs reads an array of addresses.
func readURLs(chosen variant) []string {
	var entries []any
	if chosen.outer != nil {
		entries, _ = chosen.outer.values[chosen.name].([]any)
	}
	if len(entries) == 0 || len(entries) > maxURLs {
		chosen.owner.fail(chosen.key, "%s: want an array of 1 to %d addresses", chosen.name, maxURLs)
		return nil
	}
	addresses := make([]string, len(entries))
	for i, entry := range entries {
		addresses[i] = chosen.outer.toText(chosen.name, entry, maxURL)
		if addresses[i] != "" && !isWebAddress(addresses[i]) {
			chosen.outer.fail(chosen.name, "%q is not an http:// or https:// address", addresses[i])
		}
	}
	return addresses
}

func isWebAddress(address string) bool {
	u, err := url.Parse(address)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

func readHTTPData(chosen variant) *HTTPData {
	v, ok := chosen.body()
	if !ok {
		return &HTTPData{}
	}
	return readHTTPTable(v)
}

// readHTTPTable reads the table of an Http location, in a definition or in a mix.
func readHTTPTable(v *table) *HTTPData {
	defer v.done()
	data := &HTTPData{TokenSize: readTokenSize(v), Shuffle: readShuffle(v)}
	location, ok := v.variant("location", "SingleUrl", "NumberedFiles", "Urls", "Gcp")
	if !ok {
		return data
	}
	switch location.name {
	case "SingleUrl":
		address := readURL(location)
		data.Location.SingleURL = &address
		return data
	case "Urls":
		data.Location.URLs = readURLs(location)
		return data
	}
	body, ok := location.body()
	if !ok {
		return data
	}
	defer body.done()
	if location.name == "Gcp" {
		data.Location.Gcp = &GcpBucket{
			BucketName:      body.nonEmpty("bucket_name", maxName),
			FilterDirectory: body.textOr("filter_directory", "", maxURL),
		}
		return data
	}
	failed := len(body.problems)
	files := &NumberedFiles{
		URLTemplate:   body.nonEmpty("url_template", maxName),
		StartIndex:    number[uint32](body, "start_index"),
		NLeftPadZeros: number[uint8](body, "n_left_pad_zeros"),
		NumFiles:      number[uint32](body, "num_files"),
	}
	body.report(failed, files.check())
	data.Location.NumberedFiles = files
	return data
}

func readTokenSize(v *table) TokenSize {
	switch oneOf(v, "token_size_in_bytes", "TwoBytes", "FourBytes") {
	case "TwoBytes":
		return TwoBytes
	case "FourBytes":
		return FourBytes
	default:
		return 0
	}
}

// readShuffle reads `shuffle = "DontShuffle"` or `shuffle = { Seeded = [32 bytes] }`.
func readShuffle(v *table) Shuffle {
	chosen, ok := v.variant("shuffle", "DontShuffle", "Seeded")
	if !ok || chosen.name == "DontShuffle" {
		return Shuffle{}
	}
	if chosen.outer == nil {
		v.fail("shuffle", "Seeded needs a seed: shuffle = { Seeded = [ 32 numbers ] }")
		return Shuffle{}
	}
	seed := chosen.outer.seed(chosen.name)
	return Shuffle{Seed: &seed}
}

// seed reads an array of 32 numbers from 0 to 255.
func (t *table) seed(key string) [32]byte {
	var seed [32]byte
	value, ok := t.required(key)
	if !ok {
		return seed
	}
	numbers, ok := value.([]any)
	if !ok || len(numbers) != len(seed) {
		t.fail(key, "want an array of %d numbers from 0 to 255", len(seed))
		return seed
	}
	for i, number := range numbers {
		failed := len(t.problems)
		if seed[i] = toNumber[uint8](t, key, number); len(t.problems) > failed {
			return seed
		}
	}
	return seed
}

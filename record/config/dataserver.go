package config

import "path/filepath"

// DataServer describes the data that a data server serves, as read from a data.toml.
type DataServer struct {
	// Locations are in fall-back order. In the published format there is one folder, whose relative
	// path is relative to the file. Other kinds are written as in a state.toml.
	Locations []DataLocation
	SeqLen    uint32 // tokens
}

// LoadDataServer reads a data.toml. Its error lists all problems of the file, one on each line.
func LoadDataServer(path string) (DataServer, error) {
	text, err := readFile(path)
	if err != nil {
		return DataServer{}, err
	}
	return parseDataServer(path, text)
}

// parseDataServer parses the text of a data.toml. file is its path.
func parseDataServer(file string, text []byte) (DataServer, error) {
	root, err := parse(file, text)
	if err != nil {
		return DataServer{}, err
	}
	server := DataServer{SeqLen: number[uint32](root, "seq_len")}
	if _, ok := root.values["seq_len"].(int64); ok && (server.SeqLen == 0 || server.SeqLen > maxSeqLen) {
		root.fail("seq_len", "%d is out of range, want 1 to %d", server.SeqLen, maxSeqLen)
	}
	if root.has("data_location") || root.has("data_locations") {
		server.Locations = readDataLocations(root)
		for _, location := range server.Locations {
			if location.Server != nil {
				root.document.fail(nil, "a data server cannot read from another data server; name the location of the data")
			}
		}
	} else {
		server.Locations = []DataLocation{{Local: readServedFolder(root)}}
	}
	root.done()
	if err := root.err(); err != nil {
		return DataServer{}, err
	}
	for _, location := range server.Locations {
		if location.Local != nil && !filepath.IsAbs(location.Local.Path) {
			location.Local.Path = filepath.Join(filepath.Dir(file), location.Local.Path)
		}
	}
	return server, nil
}

// readServedFolder reads the published form of a data.toml.
func readServedFolder(root *table) *LocalData {
	seed := root.seed("shuffle_seed")
	folder := &LocalData{Path: root.nonEmpty("dir", 4096), Shuffle: Shuffle{Seed: &seed}}
	switch oneOf(root, "token_size", "TwoBytes", "FourBytes") {
	case "TwoBytes":
		folder.TokenSize = TwoBytes
	case "FourBytes":
		folder.TokenSize = FourBytes
	}
	return folder
}

package config

import "path/filepath"

// DataServer is what a data.toml says of the folder that a data server serves.
type DataServer struct {
	Dir         string // relative paths in the file are relative to the file's folder
	TokenSize   TokenSize
	SeqLen      uint32 // tokens
	ShuffleSeed [32]byte
}

// LoadDataServer reads a data.toml. The error lists everything that is wrong with it,
// one line each.
func LoadDataServer(path string) (DataServer, error) {
	text, err := readFile(path)
	if err != nil {
		return DataServer{}, err
	}
	return ParseDataServer(path, text)
}

// ParseDataServer reads the text of a data.toml; file is its path.
func ParseDataServer(file string, text []byte) (DataServer, error) {
	root, err := parse(file, text)
	if err != nil {
		return DataServer{}, err
	}
	server := DataServer{
		Dir:         root.nonEmpty("dir", 4096),
		SeqLen:      number[uint32](root, "seq_len"),
		ShuffleSeed: root.seed("shuffle_seed"),
	}
	switch oneOf(root, "token_size", "TwoBytes", "FourBytes") {
	case "TwoBytes":
		server.TokenSize = TwoBytes
	case "FourBytes":
		server.TokenSize = FourBytes
	}
	if _, ok := root.values["seq_len"].(int64); ok && (server.SeqLen == 0 || server.SeqLen > maxSeqLen) {
		root.fail("seq_len", "%d is out of range, want 1 to %d", server.SeqLen, maxSeqLen)
	}
	root.done()
	if err := root.err(); err != nil {
		return DataServer{}, err
	}
	if !filepath.IsAbs(server.Dir) {
		server.Dir = filepath.Join(filepath.Dir(file), server.Dir)
	}
	return server, nil
}

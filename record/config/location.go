package config

// DataLocation says where sequences come from. Exactly one field is set.
type DataLocation struct {
	Dummy        *DummyData        `json:",omitempty"`
	Server       *ServerData       `json:",omitempty"`
	Local        *LocalData        `json:",omitempty"`
	HTTP         *HTTPData         `json:",omitempty"`
	WeightedHTTP *WeightedHTTPData `json:",omitempty"`
	Preprocessed *PreprocessedData `json:",omitempty"`
}

// Kind returns the name of the location's kind in the published format.
func (l DataLocation) Kind() string {
	switch {
	case l.Dummy != nil:
		return "Dummy"
	case l.Server != nil:
		return "Server"
	case l.Local != nil:
		return "Local"
	case l.HTTP != nil:
		return "Http"
	case l.WeightedHTTP != nil:
		return "WeightedHttp"
	case l.Preprocessed != nil:
		return "Preprocessed"
	default:
		return "none"
	}
}

// DummyData is sequences of zeros, for tests of the network.
type DummyData struct {
	Failing bool // every request fails, to test the fall-back to the next location
}

// ServerData is a data server.
type ServerData struct {
	Addr string // host:port
	Key  string `json:",omitempty"` // that the server must have, in base58; empty: the client decides
}

// LocalData is a folder of token files on each client's own disk. A relative path is
// relative to the client's working directory.
type LocalData struct {
	Path      string
	TokenSize TokenSize
	Shuffle   Shuffle
}

// HTTPData is token files that are read by range requests.
type HTTPData struct {
	Location  HTTPLocation
	TokenSize TokenSize
	Shuffle   Shuffle
}

// HTTPLocation names token files on the web. Exactly one field is set.
type HTTPLocation struct {
	SingleURL     *string        `json:",omitempty"`
	NumberedFiles *NumberedFiles `json:",omitempty"`
	Gcp           *GcpBucket     `json:",omitempty"`
	URLs          []string       `json:",omitempty"` // in the order in which the files are read
}

// NumberedFiles names files whose addresses differ by a number.
type NumberedFiles struct {
	URLTemplate   string // exactly one {} stands for the number
	StartIndex    uint32
	NLeftPadZeros uint8  // digits that the number is padded to
	NumFiles      uint32 // at least 1
}

// GcpBucket names the token files of a public Google Cloud Storage bucket.
type GcpBucket struct {
	BucketName      string
	FilterDirectory string // only files below it; empty: all
}

// WeightedHTTPData is a mix of HTTP locations that a JSON file lists with weights.
type WeightedHTTPData struct {
	URL string // address of the JSON file
}

// PreprocessedData is a data set of ready-made samples: a Hugging Face repository or a
// local folder.
type PreprocessedData struct {
	Path string
}

package config

// DataLocation is a source of sequences. Exactly one field is set.
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

// Folder returns the folder that a location names on the disk of each client, or an empty string. A
// client reads such a folder only with its user's permission.
func (l DataLocation) Folder() string {
	switch {
	case l.Local != nil:
		return l.Local.Path
	case l.Preprocessed != nil:
		return l.Preprocessed.Path
	default:
		return ""
	}
}

// DummyData is a source of zeros, for tests of the network.
type DummyData struct {
	Failing bool // every request fails, to test the fall-back to the next location
}

// ServerData is a data server.
type ServerData struct {
	Addr string // host:port
	Key  string `json:",omitempty"` // required key of the server, in base58; empty: the client decides
}

// LocalData is a folder of token files on the disk of each client. A relative path is relative to
// the client's working directory.
type LocalData struct {
	Path      string
	TokenSize TokenSize
	Shuffle   Shuffle
}

// HTTPData is a set of token files that clients read by range requests.
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
	URLs          []string       `json:",omitempty"` // in reading order
}

// NumberedFiles describes files whose addresses differ by a number.
type NumberedFiles struct {
	URLTemplate   string // contains {} exactly once, in place of the number
	StartIndex    uint32
	NLeftPadZeros uint8  // minimum digits of the number, padded with zeros
	NumFiles      uint32 // at least 1
}

// GcpBucket names the token files of a public Google Cloud Storage bucket.
type GcpBucket struct {
	BucketName      string
	FilterDirectory string // read only files below it; empty: all
}

// WeightedHTTPData is a weighted mix of HTTP locations, listed in a JSON file.
type WeightedHTTPData struct {
	URL string // address of the JSON file
}

// PreprocessedData is a folder of preprocessed samples on the disk of each client.
type PreprocessedData struct {
	Path string
}

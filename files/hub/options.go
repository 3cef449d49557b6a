package hub

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/secret"
)

// DefaultEndpoint is the public Hub.
const DefaultEndpoint = "https://huggingface.co"

// Options are the settings of a Client. Zero values mean the defaults in the comments.
type Options struct {
	Endpoint string // of the Hub; DefaultEndpoint
	CacheDir string // root of the cache; required for downloads
	Token    string // empty: requests have no token
	Offline  bool   // use the cache only
	Datasets bool   // repositories are data sets, which can only be downloaded; false: models

	Parallel  int               // number of concurrent file transfers; 3
	Attempts  int               // number of attempts of a request that makes no progress; 6
	Pause     time.Duration     // before the second attempt, then longer; 500 ms
	MaxPause  time.Duration     // longest pause that the Hub may request with Retry-After; 5 min
	Stall     time.Duration     // time without any byte after which an attempt is given up; 60 s
	Transport http.RoundTripper // default: a new transport for this client
	Space     diskspace.Probe   // of the cache; diskspace.Of
	Logger    *slog.Logger      // may be nil
}

// FromEnvironment reads the variables of the Hub's own libraries: HF_ENDPOINT, HF_HUB_CACHE (or
// HUGGINGFACE_HUB_CACHE, or HF_HOME, or XDG_CACHE_HOME), HF_TOKEN, the file HF_TOKEN_PATH (or token
// in HF_HOME), and HF_HUB_OFFLINE.
func FromEnvironment(lookup func(string) (string, bool)) (Options, error) {
	get := func(names ...string) string {
		for _, name := range names {
			if value, found := lookup(name); found && value != "" {
				return value
			}
		}
		return ""
	}
	home := get("HF_HOME")
	if home == "" {
		caches := get("XDG_CACHE_HOME")
		if user := get("HOME"); caches == "" && user != "" {
			caches = filepath.Join(user, ".cache")
		}
		if caches != "" {
			home = filepath.Join(caches, "huggingface")
		}
	}
	o := Options{
		Endpoint: strings.TrimRight(get("HF_ENDPOINT"), "/"),
		CacheDir: expandHome(get("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"), get("HOME")),
		Token:    secret.Trim(get("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")),
		Offline:  isTrue(get("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")),
	}
	home = expandHome(home, get("HOME"))
	if o.CacheDir == "" && home != "" {
		o.CacheDir = filepath.Join(home, "hub")
	}
	path := expandHome(get("HF_TOKEN_PATH"), get("HOME"))
	if path == "" && home != "" {
		path = filepath.Join(home, "token")
	}
	if o.Token == "" && path != "" && !isTrue(get("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		token, err := readToken(path)
		if err != nil {
			return o, err
		}
		o.Token = token
	}
	return o, nil
}

func expandHome(path, home string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok && home != "" {
		return filepath.Join(home, rest)
	}
	return path
}

// isTrue parses a switch as the Hub's libraries do.
func isTrue(text string) bool {
	switch strings.ToUpper(text) {
	case "1", "ON", "YES", "TRUE":
		return true
	}
	return false
}

// readToken returns the token in a file, or an empty string if there is no file.
func readToken(path string) (string, error) {
	const maxToken = 4 << 10
	info, err := os.Stat(path)
	if os.IsNotExist(err) {
		return "", nil
	}
	if err == nil && (!info.Mode().IsRegular() || info.Size() > maxToken) {
		err = fmt.Errorf("%s is not a small regular file; want a file with the token in one line", path)
	}
	var text []byte
	if err == nil {
		text, err = os.ReadFile(path)
	}
	if err != nil {
		return "", fmt.Errorf("read the Hub's token: %w", err)
	}
	return secret.Trim(string(text)), nil
}

// withDefaults fills in defaults and checks the options.
func (o Options) withDefaults() (Options, *url.URL, error) {
	o.Endpoint = cmp.Or(o.Endpoint, DefaultEndpoint)
	endpoint, err := url.Parse(o.Endpoint)
	if err != nil || endpoint.Host == "" || (endpoint.Scheme != "https" && endpoint.Scheme != "http") {
		return o, nil, fmt.Errorf("the Hub's address %q (HF_ENDPOINT): want https://host", o.Endpoint)
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return o, nil, fmt.Errorf("the Hub's token (HF_TOKEN) contains a space or an invalid character")
	}
	setDefault(&o.Parallel, 3)
	setDefault(&o.Attempts, 6)
	setDefault(&o.Pause, 500*time.Millisecond)
	setDefault(&o.MaxPause, 5*time.Minute)
	setDefault(&o.Stall, time.Minute)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	if o.Transport == nil {
		o.Transport = newTransport(o)
	}
	return o, endpoint, nil
}

func newTransport(o Options) http.RoundTripper {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = 1 << 20
	transport.DisableCompression = true // sizes and ranges refer to the uncompressed content
	transport.MaxIdleConnsPerHost = o.Parallel
	return transport
}

func setDefault[T ~int | ~int64](value *T, to T) {
	if *value <= 0 {
		*value = to
	}
}

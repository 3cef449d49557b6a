package hosting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/files/recipe"
	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/invite"
)

// Errors of Run.
var (
	errBusy    = errors.New("another psyche host uses the folder")
	errBegun   = errors.New("the run has begun with other settings")
	errEdited  = errors.New("state.toml was edited")
	ErrState   = errors.New("the edited state.toml is not valid")
	errPort    = errors.New("a port is in use")
	errData    = errors.New("token files of the run are missing")
	ErrOptions = errors.New("wrong options")
)

// Options describe the run to host.
type Options struct {
	Texts   []string // files, folders, and data sets of the Hub
	Dir     string   // folder of the run; empty: of the name, in the user's state folder
	Name    string   // id of the run; empty: from the first text
	Friends int      // expected members in addition to the host's client; UsualFriends: a default
	Link    recipe.Mbits
	Hours   float64
	Open    bool

	Model      string // a name of recipe.Sizes, a folder, or OWNER/NAME on the Hub
	Tokenizer  string // empty: of the model, next to the text, or bytes
	Authority  string // key that governs the run, in base58; empty: the host's key
	PublicAddr string // name or address for other machines; empty: the result of OwnAddress
	InstallURL string // folder with install.sh, for friends without the client; empty: none
	MinClient  string // oldest version of clients that may take part; empty: all versions
	Port       uint16 // first of five; 0: 39405, or a later port
	Chat       bool   // after the run, the page has a chat with the model

	PrepareOnly bool // start nothing
	Again       bool // move an earlier run's folder away and begin again

	Server, Client string // paths of psyche and psyche-client
	Caller
}

// Caller has the functions of the program that calls Run.
type Caller struct {
	// Local downloads the data sets of the Hub among paths, and returns local paths.
	Local func(ctx context.Context, paths []string) ([]string, error)
	// LoadTokenizer loads a tokenizer by its path, by the name of a Hub repository, or "bytes".
	LoadTokenizer func(ctx context.Context, name string) (*tokenizer.Tokenizer, error)
	// StateFolder returns the user's folder for the state of programs.
	StateFolder func() (string, error)
	// OwnAddress returns the address of this machine that other machines most likely reach.
	OwnAddress func() string
	// Serving is called before the processes start. From then on, an interrupt must end them in order.
	Serving func()
	// ShowQR prints a text as a QR code.
	ShowQR func(text string) error
	Out    io.Writer
	Err    io.Writer // for the progress of long steps
}

// UsualFriends in Options.Friends means the default number of friends.
const UsualFriends = -1

// Default numbers of friends. An open run begins with at most 16 members, which tolerate five dishonest
// members. It expects more, so that it can begin although some are missing.
const (
	defaultFriends     = 3
	defaultOpenFriends = 23
)

// Run prepares the run and hosts it until ctx ends. It returns nil if ctx ends while it hosts the run.
func Run(ctx context.Context, o Options) (err error) {
	if o, err = o.withDefaults(); err != nil {
		return err
	}
	if o.Again {
		if err := o.moveAway(); err != nil {
			return err
		}
	}
	lock, err := o.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	h := &host{Options: o, key: newKey()}
	h.printf("Run %s in %s\n", o.Name, o.Dir)
	if err := h.prepare(ctx); err != nil {
		return err
	}
	if o.PrepareOnly {
		h.printf("Nothing is started (--prepare-only). The same command without this flag hosts the run.\n")
		return nil
	}
	return h.serve(ctx)
}

// host is a call of Run.
type host struct {
	Options
	record
	now wanted // settings of this call
	key string // API key of the chat
}

func (h *host) printf(format string, args ...any) { _, _ = fmt.Fprintf(h.Out, format, args...) }

// sameCommand returns the sentence about the command that continues the run.
func (o Options) sameCommand() string {
	if o.Again {
		return "the same command without --again continues the run"
	}
	return "the same command continues the run"
}

// path returns the path of a file in the run's folder.
func (o Options) path(names ...string) string {
	return filepath.Join(append([]string{o.Dir}, names...)...)
}

// begun reports whether the server has created the run.
func (o Options) begun() bool {
	_, err := os.Stat(server.JournalPath(o.path("server"), o.Name))
	return err == nil
}

// withDefaults checks the options and sets defaults.
func (o Options) withDefaults() (_ Options, err error) {
	if len(o.Texts) == 0 {
		return o, fmt.Errorf("%w: no text; name a folder, a file or hf://datasets/OWNER/NAME", ErrOptions)
	}
	if err := o.makeAbsolute(); err != nil {
		return o, err
	}
	if o.Name == "" {
		o.Name = nameOf(o.Texts[0])
	}
	if o.Friends == UsualFriends {
		if o.Friends = defaultFriends; o.Open {
			o.Friends = defaultOpenFriends
		}
	}
	if o.Dir == "" {
		parent, err := o.StateFolder()
		if err != nil {
			return o, fmt.Errorf("%w: %w, or choose a folder with --dir", ErrOptions, err)
		}
		if !filepath.IsLocal(o.Name) || o.Name == "." {
			return o, fmt.Errorf("%w: --name %q is not a name for a folder; set --dir too", ErrOptions, o.Name)
		}
		o.Dir = filepath.Join(parent, "hosted", url.PathEscape(o.Name))
	}
	if err := o.checkPaths(); err != nil {
		return o, err
	}
	if o.Port > math.MaxUint16-allPorts+1 {
		return o, fmt.Errorf("%w: --port %d, want at most %d, because the run needs %d ports", ErrOptions, o.Port, math.MaxUint16-allPorts+1, allPorts)
	}
	if o.PublicAddr, err = hostOf(o.PublicAddr); err != nil {
		return o, fmt.Errorf("%w: --public-addr: %w", ErrOptions, err)
	}
	if err := o.checkReleases(); err != nil {
		return o, err
	}
	return o, recipe.Request{Name: o.Name, Friends: o.Friends, Link: o.Link, Hours: o.Hours, Open: o.Open}.Check()
}

// checkReleases checks the required version and the address of releases.
func (o Options) checkReleases() error {
	err := release.Requirement{Version: o.MinClient, Address: o.InstallURL}.Check()
	switch {
	case errors.Is(err, release.ErrVersion):
		return fmt.Errorf("%w: --min-client-version: %w", ErrOptions, err)
	case err != nil:
		return fmt.Errorf("%w: --install-url or PSYCHE_RELEASES: %w", ErrOptions, err)
	}
	return nil
}

// makeAbsolute makes paths independent of the working folder, so that the recorded paths stay valid.
func (o *Options) makeAbsolute() error {
	o.Texts = slices.Clone(o.Texts)
	var paths []*string
	for i := range o.Texts {
		if !isRemote(o.Texts[i]) {
			paths = append(paths, &o.Texts[i])
		}
	}
	if o.Dir != "" {
		paths = append(paths, &o.Dir)
	}
	if _, err := os.Stat(o.Model); err == nil && !o.creates() {
		paths = append(paths, &o.Model)
	}
	if _, err := os.Stat(o.Tokenizer); err == nil && o.Tokenizer != "bytes" {
		paths = append(paths, &o.Tokenizer)
	}
	for _, path := range paths {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	return nil
}

// checkPaths checks the names of files before the run's folder is created.
func (o Options) checkPaths() error {
	for _, text := range o.Texts {
		if isRemote(text) {
			continue
		}
		if _, err := os.Stat(text); err != nil && (o.Again || !o.begun()) { // a run that has begun needs only its token files
			return fmt.Errorf("%w: the text: %w; name a folder, a file or hf://datasets/OWNER/NAME", ErrOptions, err)
		}
		if inside, err := filepath.Rel(text, o.Dir); err == nil && filepath.IsLocal(inside) {
			return fmt.Errorf("%w: the run's folder %s is within the text %s; choose another folder with --dir", ErrOptions, o.Dir, text)
		}
	}
	if err := o.checkFolder(); err != nil {
		return err
	}
	if _, err := os.Stat(o.Client); err != nil {
		return fmt.Errorf("%w: the client, which trains: %w; install psyche-client, or set --client", ErrOptions, err)
	}
	if _, err := os.Stat(o.Model); err != nil && !o.creates() && o.hub() == "" {
		return fmt.Errorf("%w: --model %s: want %s, a model folder, or OWNER/NAME", ErrOptions, o.Model, recipe.Names())
	}
	return nil
}

// hostOf returns the name or address without the brackets of IPv6. An empty address stays empty.
func hostOf(address string) (string, error) {
	if address == "" {
		return "", nil
	}
	if _, _, err := net.SplitHostPort(address); err == nil {
		return "", fmt.Errorf("%s has a port; omit the port, and set --port instead", address)
	}
	host, _, err := invite.ParseAddress(address)
	return host, err
}

func isRemote(text string) bool { return strings.HasPrefix(text, "hf://") }

// nameOf returns the name of a run from the path of its text.
func nameOf(text string) string {
	name := filepath.Base(text)
	name = strings.TrimSuffix(name, filepath.Ext(name))
	name = strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '-'
	}, name), "-")
	const longest = 32
	if name == "" {
		return "run"
	}
	return name[:min(len(name), longest)]
}

// lock creates the run's folder if necessary, and locks it. The folder has the text and keys, so only the
// user can read it.
func (o Options) lock() (io.Closer, error) {
	lock, err := filelock.OpenFolder(o.Dir, 0o700)
	if errors.Is(err, filelock.ErrHeld) {
		return nil, fmt.Errorf("%w: %s%s; stop that command, or choose another --name or --dir", errBusy, o.Dir, filelock.By(err))
	}
	if err != nil {
		return nil, fmt.Errorf("the run's folder: %w", err)
	}
	return lock, nil
}

// checkFolder refuses a folder with files that are not of a run, because the steps replace files.
func (o Options) checkFolder() error {
	entries, err := os.ReadDir(o.Dir)
	if missing(err) || err == nil && len(entries) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the run's folder: %w", err)
	}
	if _, err := os.Stat(o.path(recordFile)); err != nil && !o.begun() {
		return fmt.Errorf("%w: %s has files, but no run; choose a new folder with --dir", ErrOptions, o.Dir)
	}
	return nil
}

// moveAway renames the folder of an earlier run, unless another host uses it.
func (o Options) moveAway() (err error) {
	if _, err := os.Stat(o.Dir); missing(err) {
		return nil
	}
	lock, err := o.lock()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	for i := 1; ; i++ {
		target := fmt.Sprintf("%s.old-%d", o.Dir, i)
		if _, err := os.Lstat(target); err == nil {
			continue
		}
		err := os.Rename(o.Dir, target)
		if err == nil {
			_, _ = fmt.Fprintf(o.Out, "The earlier run is in %s\n", target)
		}
		return err
	}
}

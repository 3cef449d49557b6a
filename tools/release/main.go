package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

// errUsage means that the command line names no known command.
var errUsage = errors.New("want a command: build, key or tag")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return errUsage
	}
	switch args[0] {
	case "build":
		return runBuild(ctx, args[1:], out)
	case "key":
		return runKey(args[1:], out)
	case "tag":
		return runTag(ctx, args[1:], out)
	}
	return fmt.Errorf("%w; not %q", errUsage, args[0])
}

// rootFlag adds the flag for the repository's folder.
func rootFlag(fl *flag.FlagSet) *string {
	return fl.String("root", "..", "`FOLDER` of the repository")
}

// options are the flags of build.
type options struct {
	root      string
	out       string
	platforms []platform
	key       string
	base      string
	extra     string // file with the licences of libraries outside all Debian packages
	client    bool
	packages  bool
}

func runBuild(ctx context.Context, args []string, out io.Writer) error {
	fl := flag.NewFlagSet("build", flag.ContinueOnError)
	root := rootFlag(fl)
	o := options{}
	fl.StringVar(&o.out, "out", "", "output `FOLDER`, which must be empty or absent (default build/release in the repository)")
	list := fl.String("platforms", "linux-amd64,linux-arm64,darwin-amd64,darwin-arm64,windows-amd64", "`PLATFORMS` of psyche")
	fl.StringVar(&o.key, "key", os.Getenv("PSYCHE_RELEASE_KEY"), "minisign key `FILE` that signs the release; PSYCHE_RELEASE_PASSWORD decrypts it. Without a key the release is unsigned (default $PSYCHE_RELEASE_KEY)")
	fl.StringVar(&o.base, "base", os.Getenv("PSYCHE_RELEASES"), "`URL` of the folder that will contain a folder vVERSION with these files. Without it users must set PSYCHE_RELEASES (default $PSYCHE_RELEASES)")
	fl.StringVar(&o.extra, "library-licences", "", "`FILE` with the licences of the client's libraries that are in no Debian package")
	fl.BoolVar(&o.client, "client", true, "build the client for Linux on amd64")
	fl.BoolVar(&o.packages, "deb", true, "build Debian packages")
	if err := fl.Parse(args); err != nil {
		return err
	}
	var err error
	if o.root, err = filepath.Abs(*root); err != nil {
		return err
	}
	if o.out == "" {
		o.out = filepath.Join(o.root, "build", "release")
	}
	if o.out, err = filepath.Abs(o.out); err != nil {
		return err
	}
	for name := range strings.SplitSeq(*list, ",") {
		system, machine, ok := strings.Cut(name, "-")
		if !ok {
			return fmt.Errorf("-platforms: %q is not a platform; want names such as linux-amd64", name)
		}
		o.platforms = append(o.platforms, platform{system, machine})
	}
	return build(ctx, o, out)
}

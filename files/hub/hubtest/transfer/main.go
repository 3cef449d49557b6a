// Command transfer uploads a folder, or downloads a repository and prints its folder, with package
// hub. scripts/reference/hub_oracle.sh uses it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/files/hub"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "transfer:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	options, err := hub.FromEnvironment(os.LookupEnv)
	if err != nil {
		return err
	}
	client, err := hub.New(options)
	if err != nil {
		return err
	}
	switch {
	case len(args) == 3 && args[0] == "upload":
		return upload(ctx, client, args[1], args[2])
	case len(args) == 2 && args[0] == "download":
		got, err := client.Snapshot(ctx, args[1], hub.SnapshotOptions{})
		if err == nil {
			fmt.Println(got.Dir)
		}
		return err
	}
	return errors.New("want upload REPO DIR, or download REPO")
}

func upload(ctx context.Context, client *hub.Client, repo, dir string) error {
	var files []hub.File
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files = append(files, hub.File{Path: filepath.ToSlash(name), Local: path})
		return err
	})
	if err != nil {
		return err
	}
	_, err = client.Upload(ctx, repo, files, hub.UploadOptions{Create: true, Message: "from Go"})
	return err
}

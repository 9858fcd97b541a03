package release

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"

	"golang.org/x/mod/semver"
)

// Version is the version of a release.
type Version struct {
	// Tag is it as git and the image have it: v0.1.0.
	Tag string
}

// ParseVersion returns the version that a tag names. It must be a whole semantic version with a v, since the chart,
// krew and the Go module proxy all want one; without build metadata, which no tag of a registry can hold.
func ParseVersion(tag string) (Version, error) {
	if !semver.IsValid(tag) || semver.Canonical(tag) != tag {
		return Version{}, fmt.Errorf(
			"version %q is not a tag of a release: give a semantic version with v and without build metadata, such as v0.1.0", tag)
	}
	return Version{Tag: tag}, nil
}

// Number is the version without v, as charts have it.
func (v Version) Number() string { return strings.TrimPrefix(v.Tag, "v") }

// Prerelease reports whether the version is not meant for everyone.
func (v Version) Prerelease() bool { return semver.Prerelease(v.Tag) != "" }

// Commit is what git reports of a checkout.
type Commit struct {
	// Revision is the commit.
	Revision string
	// Tag is the tag of a version at the commit, "" if there is none.
	Tag string
	// Changed reports whether files differ from the commit.
	Changed bool
}

// FindCommit asks git about the checkout at root.
func FindCommit(ctx context.Context, root string) (Commit, error) {
	var c Commit
	var err error
	if c.Revision, err = git(ctx, root, "rev-parse", "HEAD"); err != nil {
		return Commit{}, err
	}
	tags, err := git(ctx, root, "tag", "--points-at", "HEAD", "--sort=-version:refname")
	if err != nil {
		return Commit{}, err
	}
	for tag := range strings.FieldsSeq(tags) {
		if _, err := ParseVersion(tag); err == nil {
			c.Tag = tag
			break
		}
	}
	changes, err := git(ctx, root, "status", "--porcelain")
	c.Changed = changes != ""
	return c, err
}

// Version is the version of the commit's tag. Without one it is v0.0.0-g and the commit, which sorts before every
// release; the g, as in git describe, keeps a commit of digits alone from being a number with a leading zero.
func (c Commit) Version() Version {
	if c.Tag != "" {
		return Version{Tag: c.Tag}
	}
	return Version{Tag: "v0.0.0-g" + c.Revision[:min(len(c.Revision), 12)]}
}

func git(ctx context.Context, root string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = root
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

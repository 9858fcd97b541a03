module github.com/opgate/opgate/e2e/tools/olmv1

go 1.26.0

// Only its definitions are used, which are files in it: the modules that it requires are not downloaded.
require github.com/operator-framework/operator-controller v1.11.0

// A module of its own, so that programs that import krait do not download its test data.
module github.com/krait-ml/krait/testdata

go 1.26.0

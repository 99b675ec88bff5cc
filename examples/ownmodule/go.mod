module example.com/ownmodule

go 1.26.0

require github.com/krait-ml/krait v0.0.0

require (
	github.com/emicklei/dot v1.6.2 // indirect
	github.com/x448/float16 v0.8.4 // indirect
	golang.org/x/sys v0.49.0 // indirect
	golang.org/x/text v0.43.0 // indirect
)

replace github.com/krait-ml/krait => ../..

// Package deploytest checks the folder deploy without Azure: it evaluates the Bicep template for each of its parameter
// files, and compares the resources with the resource providers' schemas and with what the app reads. It holds only tests.
package deploytest

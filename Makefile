.PHONY: proto
PROTOS := $(wildcard proto/tidelog/v1/*.proto)
proto:
	.venv/bin/python -m grpc_tools.protoc --proto_path=proto --python_out=libs --grpc_python_out=libs --mypy_out=libs --mypy_grpc_out=libs --plugin=protoc-gen-mypy=.venv/bin/protoc-gen-mypy --plugin=protoc-gen-mypy_grpc=.venv/bin/protoc-gen-mypy_grpc $(PROTOS)

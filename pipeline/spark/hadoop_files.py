"""Small files on any file system that Hadoop knows. The JVM of the driver reads and writes them, with Spark's credentials.

Tables of a metering directory do not pass here: Spark's readers pass those to the tasks.
"""

import contextlib
import re
import struct
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from pipeline.errors import BadInputError
from pipeline.spark.failures import failure_line, spark_errors
from pipeline.storage.paths import AnyPath, StoreDirectory, StorePath, is_of_hadoop, path_of
from sluice.object_store import SCHEMES, ObjectStore, shown_url

HADOOP_AWS: Final = "org.apache.hadoop:hadoop-aws"
_S3: Final = "s3"
_PIECE_BYTES: Final = 8 * 2**20
"""Bytes that pass to the JVM together, as text that is a third longer."""
_STATUS: Final = "org.apache.hadoop.fs.FileStatus"
_FILES_AT_ONCE: Final = 10_000
"""Files of a listing that pass from the JVM together, of some 200 bytes each."""
_BYTES: Final = "iso-8859-1"
"""Encoding with a character for each byte."""
_NAME_LENGTH: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">i")
_ABSENT: Final = re.compile(r"\b(?:FileNotFoundException|NoSuchFileException)\b")
_NO_BUCKET: Final = re.compile(r"UnknownStoreException|NoSuchBucket")
_OF_THE_SDK: Final = re.compile(r" \((?:Service|SDK Attempt Count): ")
"""Begin of what the SDK of AWS adds to a message, which then follows once more."""
_NO_JAR: Final = re.compile(r"No FileSystem for scheme|ClassNotFoundException|NoClassDefFoundError|UnsupportedFileSystemException")


def hadoop_url(url: str) -> str:
    """Return a URL as Hadoop writes it, which names S3 `s3a`."""
    return url.replace("s3://", "s3a://", 1) if url.startswith("s3://") else url


def has_file_system(spark: Any, url: str) -> bool:
    """Whether Spark has a file system for a URL: a setting names it, and its jar is there."""
    jvm = spark._jvm
    try:
        jvm.org.apache.hadoop.fs.FileSystem.getFileSystemClass(urlsplit(hadoop_url(url)).scheme, spark._jsc.hadoopConfiguration())
    except spark_errors():
        return False
    return True


def hadoop_path(spark: Any, url: str) -> StorePath:
    """Return the path of a directory on a file system of Hadoop.

    Raises:
        BadInputError: as for `hadoop_store`.
    """
    return StorePath(StoreDirectory(hadoop_store(spark, url)))


def hadoop_store(spark: Any, url: str) -> ObjectStore:
    """Return a directory on a file system of Hadoop.

    Args:
        spark: the session, whose program is the driver.
        url: its URL.

    Raises:
        BadInputError: Spark has no jar for the URL, or its settings are wrong.
    """
    written = hadoop_url(url)
    try:
        files = HadoopFiles(spark, written)
    except spark_errors() as error:
        raise BadInputError(f"{shown_url(url)}: {reason_of(spark, written, str(error))}") from error
    return ObjectStore(written, shown_url(url), files, files.root)


def path_at(spark: Any, text: str) -> AnyPath:
    """Return the path of an input: of this machine, of an object store by pyarrow, or at a URL that only Hadoop knows.

    Args:
        spark: the session of the caller.
        text: the path or URL.

    Raises:
        BadInputError: the URL is invalid, or Spark cannot open it.
    """
    if not is_of_hadoop(text):
        return path_of(text)
    if hasattr(spark, "cloneSession"):
        raise BadInputError(
            f"{shown_url(text)}: only Hadoop knows this URL, and Spark Connect has no JVM here; name a path or an object store"
        )
    return hadoop_path(spark, text)


class HadoopFiles:
    """A file system of Hadoop with those methods of `pyarrow.fs.FileSystem` that `StoreDirectory` uses.

    Failures are `OSError`s of one line.

    Attributes:
        root: the directory that it was opened with, in the form in which Spark names its files.
    """

    def __init__(self, spark: Any, url: str) -> None:
        self._spark, self._url, self._jvm = spark, url, spark._jvm
        self._settings = spark._jsc.hadoopConfiguration()
        place = self._path(url)
        self._files = place.getFileSystem(self._settings)
        self.root = str(self._files.makeQualified(place).toString()).rstrip("/")

    def get_file_info(self, what: fs.FileSelector | str) -> Any:
        """Return the file of a path, or all files below the directory of a selector."""
        if isinstance(what, fs.FileSelector):
            with self._errors():
                return list(self._files_below(what.base_dir))
        try:
            with self._errors():
                status = self._files.getFileStatus(self._path(what))
        except FileNotFoundError:
            return fs.FileInfo(what, fs.FileType.NotFound)
        return fs.FileInfo(what, fs.FileType.File if status.isFile() else fs.FileType.Directory, size=status.getLen())

    def _files_below(self, directory: str) -> Iterator[fs.FileInfo]:
        """Yield all files below a directory. They pass from the JVM many at a time, since calls for each take longer than its listing."""
        hadoop, io = self._jvm.org.apache.hadoop, self._jvm.java.io
        found = hadoop.util.functional.RemoteIterators.toList(self._files.listFiles(self._path(directory), True))
        of_statuses = self._jvm.java.lang.Class.forName(f"[L{_STATUS};")
        for first in range(0, number := found.size(), _FILES_AT_ONCE):
            part = found.subList(first, min(first + _FILES_AT_ONCE, number)).toArray()
            data = io.ByteArrayOutputStream()
            hadoop.io.ObjectWritable.writeObject(io.DataOutputStream(data), part, of_statuses, self._settings)
            text: str = data.toString(_BYTES)  # which passes in a fifth of the time that an array of bytes takes
            for path, size in files_of(text.encode(_BYTES)):
                yield fs.FileInfo(path, fs.FileType.File, size=size)

    def open_input_stream(self, path: str) -> Any:
        """Return the content of a file."""
        with self._errors():
            stream = self._files.open(self._path(path))
            try:
                return pa.BufferReader(bytes(stream.readAllBytes()))
            finally:
                stream.close()

    @contextlib.contextmanager
    def open_output_stream(self, path: str) -> Iterator[Any]:
        """Yield a sink, whose content the file has when the block ends."""
        sink = pa.BufferOutputStream()
        yield sink
        data, place = bytearray(sink.getvalue().to_pybytes()), self._path(path)
        with self._errors():
            if urlsplit(self._url).scheme in SCHEMES:  # in an object store a file appears when it is complete
                self._put(place, data)
            else:
                new = self._path(f"{path.rpartition('/')[0]}/.{path.rpartition('/')[2]}.new")
                self._put(new, data)
                self._rename(new, place)

    def _put(self, place: Any, data: bytearray) -> None:
        stream = self._files.create(place, True)
        try:
            for first in range(0, len(data), _PIECE_BYTES):
                stream.write(data[first : first + _PIECE_BYTES])
        finally:
            stream.close()

    def _rename(self, source: Any, target: Any) -> None:
        option = self._jvm.org.apache.hadoop.fs.Options.Rename
        options = self._spark.sparkContext._gateway.new_array(option, 1)
        options[0] = option.OVERWRITE
        self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(source.toUri(), self._settings).rename(source, target, options)

    def delete_file(self, path: str) -> None:
        """Remove a file."""
        with self._errors():
            if not self._files.delete(self._path(path), False):
                raise FileNotFoundError(2, "is missing", path)

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except spark_errors() as error:
            text = str(error)
            if _ABSENT.search(text) and not _NO_BUCKET.search(text):
                raise FileNotFoundError(2, "is missing", self._url) from error
            raise OSError(reason_of(self._spark, self._url, text)) from error


def files_of(data: bytes) -> Iterator[tuple[str, int]]:
    """Yield path and length of each file of Hadoop's `ObjectWritable` of an array of file statuses.

    It has the name of the array's class and the number of files. Each file has two names of classes and, after its length, a message
    `FileStatusProto` of Protocol Buffers, which begins with the fields 1 (kind), 2 (path) and 3 (length).
    """
    at = _after_name(data, 0) + _LENGTH.size
    while at < len(data):
        first = _after_name(data, _after_name(data, at)) + _LENGTH.size
        _, kind_end = _uvarint(data, first + 1)
        path_bytes, path = _uvarint(data, kind_end + 1)
        size, _ = _uvarint(data, path + path_bytes + 1)
        yield data[path : path + path_bytes].decode(), size
        at = first + _LENGTH.unpack_from(data, first - _LENGTH.size)[0]


def _after_name(data: bytes, at: int) -> int:
    return at + _NAME_LENGTH.size + int(_NAME_LENGTH.unpack_from(data, at)[0])


def _uvarint(data: bytes, at: int) -> tuple[int, int]:
    """Return the unsigned varint at `at`, and the offset behind it."""
    value = shift = 0
    while (byte := data[at]) >= 0x80:
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return value | byte << shift, at + 1


def lacks_jar(text: str) -> bool:
    """Whether an error says that Spark has no jar for a URL."""
    return _NO_JAR.search(text) is not None


def reason_of(spark: Any, url: str, text: str) -> str:
    """Return what a message says about a failure of Hadoop."""
    if _NO_BUCKET.search(text):
        return "there is no such bucket"
    if not lacks_jar(text):
        return _OF_THE_SDK.split(failure_line(text))[0]
    scheme = urlsplit(url).scheme
    if SCHEMES.get(scheme) != _S3:
        return f"Spark has no file system for {scheme}: ({failure_line(text)}); add its jar with --conf spark.jars.packages=..."
    is_of_connect = hasattr(spark, "cloneSession")  # without a JVM of its own
    version = "VERSION" if is_of_connect else spark._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
    return f"Spark has no jar for {scheme}:; add --conf spark.jars.packages={HADOOP_AWS}:{version}"
